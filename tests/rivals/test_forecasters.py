"""Forecasters on series whose future is known exactly, and Holt-Winters against its own recursion."""

from __future__ import annotations

import math

import numpy as np
import pytest

pytest.importorskip("statsmodels")

from autolrs.rivals.forecasters import FORECASTERS, singular_spectrum

T = np.arange(1, 101, dtype=float)
NOISE = 0.01 * np.random.default_rng(0).standard_normal(100)


def exponential(t):
    return 2 * np.exp(-t / 60) + 1


def power(t):
    return 3 * t**-0.5 + 0.5


@pytest.mark.parametrize(
    ("name", "truth", "horizon", "tolerance"),
    [
        ("exponential (paper)", exponential, 1000, 1e-3),
        ("exponential (bounded)", exponential, 1000, 0.5),  # damped on purpose: at most one more probe's length
        ("power law", power, 1000, 0.1),
        ("SSA", exponential, 150, 1e-3),  # an exponential is a linear recurrence of order one, the mean makes two
        ("SSA", lambda t: np.sin(t / 5), 140, 0.1),
        ("ARIMA", lambda t: 5 - 0.02 * t, 150, 0.1),
        ("Holt-Winters", lambda t: 5 - 0.02 * t, 110, 0.1),
        ("last value", exponential, 1000, 2.0),
    ],
)
def test_forecast_is_near_a_known_future(name, truth, horizon, tolerance):
    assert FORECASTERS[name](truth(T), horizon) == pytest.approx(float(truth(float(horizon))), abs=tolerance)


def test_ssa_continues_a_recurrence_exactly():
    """A damped cosine obeys y_t = 2 r cos(w) y_{t-1} - r^2 y_{t-2}."""
    r, w = 0.99, 0.3
    y = [1.0, r * math.cos(w)]
    while len(y) < 160:
        y.append(2 * r * math.cos(w) * y[-1] - r * r * y[-2])
    series = np.array(y[:100])
    centred = series - series.mean()  # what the method subtracts, so that the mean is no third component
    assert singular_spectrum(centred - 0.0, 120) == pytest.approx(y[119] - series.mean(), abs=0.05)


def test_holt_winters_is_the_recursion_that_it_says():
    from statsmodels.tsa.holtwinters import Holt

    y = exponential(T) + NOISE
    model = Holt(y, damped_trend=True, initialization_method="estimated").fit()
    p = model.params
    level, trend = p["initial_level"], p["initial_trend"]
    for value in y:
        before = level
        level = p["smoothing_level"] * value + (1 - p["smoothing_level"]) * (before + p["damping_trend"] * trend)
        trend = p["smoothing_trend"] * (level - before) + (1 - p["smoothing_trend"]) * p["damping_trend"] * trend
    expected = level + trend * sum(p["damping_trend"] ** i for i in range(1, 51))
    assert FORECASTERS["Holt-Winters"](y, 150) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("name", FORECASTERS)
def test_a_noisy_and_a_short_series_give_a_number(name):
    assert math.isfinite(FORECASTERS[name](exponential(T) + NOISE, 1000))
    assert math.isfinite(FORECASTERS[name]((exponential(T) + NOISE)[:10], 100))
