"""Forecasts of a loss series by other models than ours, as the paper's Appendix A.2 compares them.

Each is a function (losses, shape (n,), of steps 1..n; horizon, a later step) -> the loss after `horizon` steps.
Holt-Winters and ARIMA come from statsmodels (extra `bench`), imported only when asked for.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar

from autolrs.core.forecast import forecast
from autolrs.core.smoothing import smooth

Array = NDArray[np.float64]
Forecaster = Callable[[Array, int], float]

_SSA_SHARE = 0.9  # of the variance, kept as signal


def paper_exponential(losses: Array, horizon: int) -> float:
    """a exp(b t) + c after ten rounds of spline smoothing (Section 4.2, Appendix A.2, A.3)."""
    return forecast(losses, horizon).value


def bounded_exponential(losses: Array, horizon: int) -> float:
    """The same, never below 0 nor below a damped extrapolation: ours."""
    return forecast(losses, horizon, bounded=True).value


def last_value(losses: Array, horizon: int) -> float:
    """No forecast: the last smoothed loss."""
    return float(smooth(losses)[-1])


def power_law(losses: Array, horizon: int) -> float:
    """a t^-p + c, p between .01 and 3; with p fixed, a and c are linear least squares.

    Not smoothed: a spline rounds off the steep beginning that tells p.
    """
    y = losses
    t = np.arange(1, y.size + 1) / y.size

    def fit(p: float) -> tuple[float, Array]:
        columns = np.stack([t**-p, np.ones_like(t)], axis=1)
        found = np.linalg.lstsq(columns, y, rcond=None)[0]
        return float(np.sum((columns @ found - y) ** 2)), np.asarray(found, np.float64)

    best = minimize_scalar(
        lambda log_p: fit(math.exp(log_p))[0], bounds=(math.log(0.01), math.log(3.0)), method="bounded"
    )
    p = math.exp(float(best.x))
    a, c = fit(p)[1]
    return float(a * (horizon / y.size) ** -p + c)


def holt_winters(losses: Array, horizon: int) -> float:
    """Exponential smoothing of level and damped trend, without a season: losses have none."""
    from statsmodels.tsa.holtwinters import Holt

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that a fit did not converge: its answer is compared all the same
        model = Holt(losses, damped_trend=True, initialization_method="estimated").fit()
    return float(model.forecast(horizon - losses.size)[-1])


def arima(losses: Array, horizon: int) -> float:
    """ARIMA(2, 1, 1): one difference takes the trend out."""
    from statsmodels.tsa.arima.model import ARIMA

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = ARIMA(losses, order=(2, 1, 1)).fit()
    return float(model.forecast(horizon - losses.size)[-1])


def singular_spectrum(losses: Array, horizon: int) -> float:
    """Singular spectrum analysis: the leading components of the trajectory matrix, continued by their recurrence.

    With U the leading left singular vectors of length L and pi their last row, the next value of the signal is
    sum_k pi_k U_k[:-1] / (1 - |pi|^2) times the L - 1 values before it.
    """
    mean = float(losses.mean())
    y = losses - mean
    length = max(2, y.size // 2)
    trajectory = np.lib.stride_tricks.sliding_window_view(y, length).T  # (L, K)
    left, values, right = np.linalg.svd(trajectory, full_matrices=False)
    power = np.cumsum(values**2)
    rank = min(int(np.searchsorted(power, _SSA_SHARE * power[-1])) + 1, length - 1)
    signal = _hankel_mean((left[:, :rank] * values[:rank]) @ right[:rank])
    last = left[-1, :rank]
    verticality = float(last @ last)
    if verticality >= 1.0 - 1e-9:  # the recurrence does not exist
        return mean + float(signal[-1])
    recurrence = (left[:-1, :rank] @ last) / (1.0 - verticality)
    window = signal[-(length - 1) :].copy()
    for _ in range(horizon - y.size):
        window = np.append(window[1:], recurrence @ window)
        if not abs(window[-1]) < 1e100:
            return math.inf
    return mean + float(window[-1])


def _hankel_mean(matrix: Array) -> Array:
    """The series whose trajectory matrix is nearest: means of the anti-diagonals."""
    rows, columns = matrix.shape
    index = np.add.outer(np.arange(rows), np.arange(columns)).ravel()
    return np.asarray(np.bincount(index, matrix.ravel()) / np.bincount(index))


FORECASTERS: dict[str, Forecaster] = {
    "exponential (paper)": paper_exponential,
    "exponential (bounded)": bounded_exponential,
    "last value": last_value,
    "power law": power_law,
    "Holt-Winters": holt_winters,
    "ARIMA": arima,
    "SSA": singular_spectrum,
}
