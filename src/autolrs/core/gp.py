"""Gaussian-process posterior of the loss over log LR (Appendix A.1).

Notation: x are explored log LRs, y their forecast losses, K the Matern-5/2 covariance, sigma^2 the noise variance. A
stage has some ten points in one dimension, so the closed form by Cholesky takes microseconds and hyper-parameters stay
fixed, as printed.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]


def matern52(a: ArrayLike, b: ArrayLike, length_scale: float = 1.0) -> Array:
    """Matern covariance with nu = 5/2, shape (len(a), len(b)); Eq. (4) of the paper in its closed form for this nu.

    >>> float(matern52([0.0], [0.0])[0, 0])
    1.0
    """
    r = np.abs(np.subtract.outer(np.asarray(a, float), np.asarray(b, float))) * (np.sqrt(5.0) / length_scale)
    return np.asarray((1.0 + r + r * r / 3.0) * np.exp(-r))


class Posterior:
    """The posterior given observations; call it at new points. Factorised once, evaluated many times."""

    def __init__(
        self, x: ArrayLike, y: ArrayLike, *, noise: float = 1e-4, length_scale: float = 1.0, amplitude: float = 1.0
    ) -> None:
        """`x`, `y` of shape (n,); `noise` is the variance sigma^2, `amplitude` the prior's variance K(x, x)."""
        self.x = np.asarray(x, float).reshape(-1)
        self.y = np.asarray(y, float).reshape(-1)
        if self.x.shape != self.y.shape:
            raise ValueError(f"`x` and `y` must have the same length, got {self.x.size} and {self.y.size}")
        if not (np.isfinite(self.x).all() and np.isfinite(self.y).all()):
            raise ValueError("`x` and `y` must be finite")
        self.length_scale, self.amplitude = length_scale, amplitude
        if self.x.size:
            covariance = amplitude * matern52(self.x, self.x, length_scale)
            lower = _cholesky(covariance, noise)
            self._whiten = np.linalg.inv(lower)
            self._weights = self._whiten.T @ (self._whiten @ self.y)

    def __call__(self, x_new: ArrayLike) -> tuple[Array, Array]:
        """Mean and standard deviation of f at `x_new`, each of shape (m,)."""
        x_new = np.asarray(x_new, float).reshape(-1)
        if not self.x.size:
            return np.zeros(x_new.size), np.full(x_new.size, np.sqrt(self.amplitude))
        k = self.amplitude * matern52(x_new, self.x, self.length_scale)
        # einsum, not @: for matrices this small, waking BLAS threads costs more than the arithmetic.
        mean = np.einsum("ij,j->i", k, self._weights)
        white = np.einsum("ij,kj->ik", k, self._whiten)
        variance = self.amplitude - np.einsum("ij,ij->i", white, white)
        return mean, np.sqrt(np.maximum(variance, 0.0))


def posterior(
    x: ArrayLike,
    y: ArrayLike,
    x_new: ArrayLike,
    *,
    noise: float = 1e-4,
    length_scale: float = 1.0,
    amplitude: float = 1.0,
) -> tuple[Array, Array]:
    """Posterior mean and standard deviation at `x_new`; Eq. (7) of the paper.

    >>> mean, std = posterior([0.0], [2.0], [0.0], noise=0.0)
    >>> round(float(mean[0]), 6), round(float(std[0]), 3)
    (2.0, 0.0)
    """
    return Posterior(x, y, noise=noise, length_scale=length_scale, amplitude=amplitude)(x_new)


def _cholesky(covariance: Array, noise: float) -> Array:
    """Lower factor of K + sigma^2 I. Where duplicate LRs make it singular, the least jitter that works is added."""
    identity = np.eye(len(covariance))
    for jitter in (0.0, 1e-12, 1e-10, 1e-8, 1e-6):
        try:
            return np.asarray(np.linalg.cholesky(covariance + (noise + jitter) * identity))
        except np.linalg.LinAlgError:
            continue
    raise np.linalg.LinAlgError("covariance is not positive definite even with jitter 1e-6")
