"""Iterative spline smoothing of a probe's losses before the forecast is fitted (Appendix A.3).

A quadratic regression spline on equal pieces is fitted ten times; after each fit the losses among the farthest 3 % from
it are left out of the next one if they lie in the first half. The fit is linear in the losses, so scale and offset pass
through unchanged.
"""

from __future__ import annotations

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
    for round_ in range(1, rounds + 1):
        quota = int(outlier_fraction * n * round_ + 1e-9) - int(outlier_fraction * n * (round_ - 1) + 1e-9)
        if not quota:
            continue
        distance = np.where(kept, np.abs(z - fit) + tie, -1.0)
        farthest = np.argpartition(distance, n - quota)[n - quota :]
        drop = farthest[(farthest < half) & kept[farthest]]
        if kept.sum() - drop.size < spline.size:
            break
        if drop.size:
            kept[drop] = False
            spline.add(drop, -1.0)
            fit = spline.values()
    return np.asarray(offset + scale * fit)


class _Spline:
    """Least-squares quadratic B-spline on equal pieces.

    Each point touches three coefficients, so points enter and leave the tiny normal equations one by one.
    """

    def __init__(self, z: Array, pieces: int) -> None:
        u = np.linspace(0.0, pieces, z.size)
        self.cell = np.minimum(u.astype(int), pieces - 1)
        u -= self.cell
        self.basis = np.stack([(1 - u) ** 2 / 2, (1 + 2 * u - 2 * u * u) / 2, u * u / 2])  # (3, n)
        self.z, self.size = z, pieces + 2
        # Third differences vanish on quadratics: this ridge leaves them exact and only bridges emptied pieces.
        third = np.diff(np.eye(self.size), 3, axis=0)
        self.gram = 1e-6 * z.size / pieces * (third.T @ third)
        self.right = np.zeros(self.size)
        self.add(np.arange(z.size), 1.0)

    def add(self, points: NDArray[np.int64], sign: float) -> None:
        """Enter (`sign` 1) or take out (-1) the points of these indices."""
        basis = self.basis[:, points]
        row = self.cell[points] + np.arange(3)[:, None]  # (3, m): the coefficients each point touches
        np.add.at(self.right, row, sign * basis * self.z[points])
        np.add.at(self.gram, (row[:, None], row[None]), sign * basis[:, None] * basis[None])

    def values(self) -> Array:
        """The spline at every point."""
        c = np.linalg.solve(self.gram, self.right)
        return np.asarray(np.einsum("in,in->n", self.basis, c[self.cell + np.arange(3)[:, None]]))
