"""Forecast of a probe's loss at the end of the stage: L(t) = a exp(b t) + c with b < 0 (Section 4.2, Appendix A.2).

With b = -exp(b') fixed, a and c are a linear least-squares problem with a closed form; what is left is a
one-dimensional minimisation over b'. Outcomes that cannot be fitted are status codes, not exceptions, because a probe
that diverged is an answer too.
"""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from autolrs.core.settings import Settings
from autolrs.core.smoothing import MIN_POINTS, smooth
from autolrs.core.types import Forecast, Status

Array = NDArray[np.float64]

# b' is searched in units of the probe's length: from almost a straight line (1/1000 of a decay) to a drop within its
# first steps.
_LOG_RATES = np.linspace(math.log(1e-3), math.log(1e3), 25)
_FRACTIONS = np.linspace(0.0, 1.0, 21)
_ZOOMS = 5  # each looks between the neighbours of the best rate so far, ten times finer: to 1e-5 in b'
_MAX_FIT_POINTS = 200
_HUGE = 1e100  # a loss this size is as good as infinite, and sums of squares below it stay finite


def forecast(
    losses: ArrayLike,
    horizon: float,
    *,
    every: int = 1,
    method: Literal["exponential", "last"] = "exponential",
    bounded: bool = False,
    rounds: int = 10,
    outlier_fraction: float = 0.03,
    pieces: int = 8,
) -> Forecast:
    """Loss after `horizon` steps, from `losses` recorded after steps `every`, `2 * every`, ...

    Args:
        losses: shape (n,), one per `every` steps.
        horizon: steps from the probe's start at which the loss is wanted [tau]: the value *after* that many steps.
        method: `exponential` as printed; `last` is the ablation without a forecast (the loss at the probe's end).
        bounded: never below 0 where no loss was, and never below a damped extrapolation (at most one more probe's
            length at the final slope), so that a fit cannot win by its own error.
        rounds, outlier_fraction, pieces: see `smoothing.smooth`.

    >>> t = np.arange(1, 101)
    >>> f = forecast(2 * np.exp(-t / 50) + 1, horizon=1000)
    >>> f.status, round(f.value, 3)
    ('ok', 1.0)
    """
    y = np.asarray(losses, float).reshape(-1)
    if y.size == 0:
        raise ValueError("`losses` must not be empty")
    if horizon < every * y.size:
        raise ValueError(f"`horizon` must not lie before the last loss (step {every * y.size}), got {horizon}")
    if not (np.abs(y) < _HUGE).all():
        return Forecast(math.inf, math.nan, math.nan, math.nan, "diverged")
    last = float(y[-1])
    if y.size < MIN_POINTS:
        return Forecast(last, 0.0, 0.0, last, "too_short")
    if np.ptp(y) <= 1e-12 * max(1e-300, float(np.abs(y).max())):
        return Forecast(last, 0.0, 0.0, last, "flat")
    smoothed = smooth(y, rounds=rounds, outlier_fraction=outlier_fraction, pieces=pieces)
    length = float(every * y.size)
    amplitude, decay, asymptote = _fit(smoothed)
    status: Status = "rising" if amplitude < 0 else "ok"
    if method == "last":
        return Forecast(last, 0.0, 0.0, last, status)
    value = amplitude * math.exp(-decay * horizon / length) + asymptote
    if bounded:
        value = max(value, _floor(y, smoothed, horizon / length))
    return Forecast(value, amplitude, -decay / length, asymptote, status)


def forecast_probe(settings: Settings, losses: ArrayLike, stage_steps: int, every: int) -> Forecast:
    """A probe's forecast at the end of its stage, as `settings` have it."""
    return forecast(
        losses,
        max(stage_steps, every * np.size(losses)),
        every=every,
        method=settings.forecast,
        bounded=settings.bounded_forecast,
        rounds=settings.rounds,
        outlier_fraction=settings.outlier_fraction,
        pieces=settings.spline_pieces,
    )


def _fit(y: Array) -> tuple[float, float, float]:
    """(a, exp(b'), c) minimising the squared error, with time in units of the series' length."""
    s = np.arange(1, y.size + 1) / y.size
    if y.size > _MAX_FIT_POINTS:
        # The series is a spline of a few pieces: an even sample of it determines the fit as well as all of it.
        sample = np.linspace(0, y.size - 1, _MAX_FIT_POINTS).round().astype(int)
        s, y = s[sample], y[sample]
    offset, scale = float(y.mean()), float(np.ptp(y)) or 1.0
    z = (y - offset) / scale
    log_rates = _LOG_RATES
    for _ in range(_ZOOMS + 1):
        best = int(np.argmin(_profile(log_rates, s, z)))
        decay = math.exp(log_rates[best])
        low, high = log_rates[max(best - 1, 0)], log_rates[min(best + 1, log_rates.size - 1)]
        log_rates = low + (high - low) * _FRACTIONS
    e = np.exp(-decay * s)
    centred = e - e.mean()
    a = float(centred @ z) / float(centred @ centred)
    return a * scale, decay, offset - a * scale * float(e.mean())


def _profile(log_rates: Array, s: Array, z: Array) -> Array:
    """g(b'): least squared error over a and c for each rate, shape (len(log_rates),); `z` has mean 0."""
    e = np.exp(-np.exp(log_rates)[:, None] * s)
    e -= e.mean(axis=1, keepdims=True)
    power = np.maximum(np.einsum("ij,ij->i", e, e), 1e-300)
    return np.asarray(np.einsum("j,j->", z, z) - np.einsum("ij,j->i", e, z) ** 2 / power)


def _floor(y: Array, smoothed: Array, lengths: float) -> float:
    """Lowest credible loss after `lengths` probe lengths: the last quarter's slope fades over one more probe length."""
    tail = smoothed[-max(2, smoothed.size // 4) :]
    slope = float(tail[-1] - tail[0]) / (tail.size - 1) * smoothed.size
    damped = float(smoothed[-1]) + min(slope, 0.0) * (1.0 - math.exp(-(lengths - 1.0)))
    return max(damped, 0.0) if float(y.min()) >= 0.0 else damped
