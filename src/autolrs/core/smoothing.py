"""Iterative spline smoothing of a probe's losses before the forecast is fitted (Appendix A.3).

A quadratic regression spline on equal pieces is fitted ten times; after each fit the losses among the farthest 3 % from
it are left out of the next one if they lie in the first half. The fit is linear in the losses, so scale and offset pass
through unchanged.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]
MIN_POINTS = 4


def smooth(
    losses: ArrayLike,
    *,
    rounds: int = 10,
    outlier_fraction: float = 0.03,
    pieces: int = 8,
) -> Array:
    """Smoothed losses, same length as `losses` (at least 4, all finite); values left out of the fit are interpolated.

    `pieces` caps the number of quadratic pieces; shorter series get fewer, one per three points. A fraction that is not
    a whole number of points is carried to the next round, so short series lose the same share as long ones.

    >>> smooth([3.0, 2.0, 1.0, 0.0]).round(6).tolist()
    [3.0, 2.0, 1.0, 0.0]
    """
    y = np.asarray(losses, float).reshape(-1)
    n = y.size
    if n < MIN_POINTS:
        raise ValueError(f"`losses` must have at least {MIN_POINTS} values, got {n}")
    if not np.isfinite(y).all():
        raise ValueError("`losses` must be finite")
    offset, scale = float(np.median(y)), float(np.ptp(y))
    if scale == 0.0:
        return y.copy()
    # Fitting in units of the series' own range keeps rounding, and so the choice of outliers, the same at any scale.
    z = (y - offset) / scale
    spline = _Spline(z, min(pieces, max(1, n // 3 - 1)))
    kept = np.ones(n, bool)
    half = n // 2
    tie = np.linspace(0.0, 1e-9, n)  # of two equally far points the later is farther, so that rounding does not choose
    fit = spline.values()
    quiet = 0  # as many farthest points as this hold none to drop from the present fit
    for round_ in range(1, rounds + 1):
        quota = int(outlier_fraction * n * round_ + 1e-9) - int(outlier_fraction * n * (round_ - 1) + 1e-9)
        if quota <= quiet:
            continue
        distance = np.where(kept, np.abs(z - fit) + tie, -1.0)
        farthest = np.argpartition(distance, n - quota)[n - quota :]
        drop = farthest[(farthest < half) & kept[farthest]]
        if kept.sum() - drop.size < spline.size:
            break
        if not drop.size:
            quiet = quota
            continue
        kept[drop], quiet = False, 0
        spline.drop(drop)
        fit = spline.values()
    return np.asarray(offset + scale * fit)


class _Spline:
    """Least-squares quadratic B-spline on equal pieces.

    Each point touches three coefficients, so points leave the tiny normal equations without the rest being summed anew.
    """

    def __init__(self, z: Array, pieces: int) -> None:
        self.z, self.size = z, pieces + 2
        self.basis, self.row, gram = _layout(z.size, pieces)
        self.gram = gram.copy()
        self.right = np.bincount(self.row.ravel(), (self.basis * z).ravel(), self.size)

    def drop(self, points: NDArray[np.int64]) -> None:
        """Take out the points of these indices."""
        basis, row = self.basis[:, points], self.row[:, points]
        self.right -= np.bincount(row.ravel(), (basis * self.z[points]).ravel(), self.size)
        self.gram -= _products(basis, row, self.size)

    def values(self) -> Array:
        """The spline at every point."""
        c = np.linalg.solve(self.gram, self.right)
        return np.asarray(np.einsum("in,in->n", self.basis, c.take(self.row)))


@lru_cache(maxsize=2)  # all probes of a stage are equally long
def _layout(n: int, pieces: int) -> tuple[Array, NDArray[np.int64], Array]:
    """Values of the three basis functions at each point (3, n), the coefficients they belong to, and their products."""
    u = np.linspace(0.0, pieces, n)
    cell = np.minimum(u.astype(int), pieces - 1)
    u -= cell
    basis = np.stack([(1 - u) ** 2 / 2, (1 + 2 * u - 2 * u * u) / 2, u * u / 2])
    row = cell + np.arange(3)[:, None]
    # Third differences vanish on quadratics: this ridge leaves them exact and only bridges emptied pieces.
    third = np.diff(np.eye(pieces + 2), 3, axis=0)
    return basis, row, 1e-6 * n / pieces * (third.T @ third) + _products(basis, row, pieces + 2)


def _products(basis: Array, row: NDArray[np.int64], size: int) -> Array:
    """Sums of products of basis functions over these points, shape (size, size)."""
    places = size * row[:, None] + row
    products = np.bincount(places.ravel(), (basis[:, None] * basis).ravel(), size * size)
    return np.asarray(products, float).reshape(size, size)
