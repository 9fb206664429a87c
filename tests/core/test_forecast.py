import math

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from autolrs.core.forecast import forecast, forecast_probe
from autolrs.core.settings import Settings


def curve(t, a=2.0, b=-0.02, c=1.0):
    return a * np.exp(b * np.asarray(t, float)) + c


def series(n, a=2.0, b=-0.02, c=1.0, every=1):
    return curve(every * np.arange(1, n + 1), a, b, c)


@pytest.mark.parametrize("n", [20, 100, 800])
@pytest.mark.parametrize("decays", [0.5, 1.0, 2.0, 4.0])
@pytest.mark.parametrize(("a", "c"), [(2.0, 1.0), (0.3, 0.0), (5.0, -4.0), (-1.0, 3.0)])
def test_parameters_of_a_clean_series_are_recovered(n, decays, a, c):
    b = -decays / n
    found = forecast(series(n, a, b, c), 10 * n)
    assert found.amplitude == pytest.approx(a, rel=0.02)
    assert found.rate == pytest.approx(b, rel=0.02)
    assert found.asymptote == pytest.approx(c, abs=0.02 * abs(a))


@pytest.mark.parametrize("n", [10, 20, 100])
@pytest.mark.parametrize("ahead", [0, 1, 5])
def test_value_is_the_one_after_the_horizon_not_a_step_beside_it(n, ahead):
    y = series(n, b=-1 / n)
    horizon = n + ahead
    slip = abs(curve(horizon + 1, b=-1 / n) - curve(horizon, b=-1 / n))
    assert abs(forecast(y, horizon).value - curve(horizon, b=-1 / n)) < 0.15 * slip


@pytest.mark.parametrize("every", [2, 10, 50])
def test_validation_series_is_dated_by_the_steps_between_evaluations(every):
    y = series(16, b=-1 / (16 * every), every=every)  # after steps 50, 100, ..., 800
    found = forecast(y, 8000, every=every)
    assert found.rate == pytest.approx(-1 / (16 * every), rel=0.02)
    at_end = forecast(y, 16 * every + every, every=every)
    assert at_end.value == pytest.approx(curve(17 * every, b=-1 / (16 * every)), abs=2e-3)


def test_noise_is_passed_over():
    rng = np.random.default_rng(0)
    values = [forecast(series(100) + 0.05 * rng.standard_normal(100), 1000).value for _ in range(50)]
    assert np.median(values) == pytest.approx(1.0, abs=0.1)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("place", [0, 50, 99])
@pytest.mark.parametrize("method", ["exponential", "last"])
def test_series_with_a_value_that_is_not_finite_diverged_and_is_infinitely_bad(bad, place, method):
    y = series(100)
    y[place] = bad
    found = forecast(y, 1000, method=method, bounded=True)
    assert (found.status, found.value) == ("diverged", math.inf)


def test_diverged_is_told_before_too_short():
    assert forecast([math.nan], 10).status == "diverged"


@pytest.mark.parametrize("value", [0.0, 1e-9, 2.3, -50.0, 1e9])
@pytest.mark.parametrize("n", [4, 17, 100])
def test_constant_series_is_flat_and_stays(value, n):
    found = forecast([value] * n, 1000)
    assert (found.status, found.value) == ("flat", value)


def test_change_below_rounding_is_flat():
    assert forecast(1.0 + 1e-14 * np.arange(20), 1000).status == "flat"


@pytest.mark.parametrize("n", [4, 10, 100])
def test_rising_series_is_forecast_above_its_end(n):
    y = np.linspace(1, 2, n)
    found = forecast(y, 10 * n)
    assert found.status == "rising"
    assert found.value > 2.0


@pytest.mark.parametrize("n", [1, 2, 3])
def test_series_of_fewer_than_four_is_too_short_and_its_last_value_stands(n):
    found = forecast([3.0, 2.0, 1.5][:n], 100)
    assert (found.status, found.value) == ("too_short", [3.0, 2.0, 1.5][n - 1])


@pytest.mark.parametrize("n", range(4, 18))
def test_short_and_spiky_series_give_an_answer_in_reach_of_the_data(n):
    y = series(n, b=-2 / n)
    y[1] += 20
    found = forecast(y, 10 * n, bounded=True)
    assert found.status in ("ok", "rising")
    assert math.isfinite(found.value)


def test_last_is_the_loss_at_the_probes_end():
    y = series(100)
    y[-1] = 1.2345
    assert forecast(y, 1000, method="last").value == 1.2345


@pytest.mark.parametrize("bounded", [False, True])
@pytest.mark.parametrize("n", [5, 17, 100])
@pytest.mark.parametrize("scale", [1e-6, 1e6])
def test_forecast_scales_with_the_loss(scale, n, bounded):
    y = series(n, b=-1 / n) + 0.02 * np.random.default_rng(n).standard_normal(n)
    plain, scaled = forecast(y, 10 * n, bounded=bounded), forecast(scale * y, 10 * n, bounded=bounded)
    assert scaled.value / scale == pytest.approx(plain.value, rel=1e-5)
    assert scaled.rate == pytest.approx(plain.rate, rel=1e-4)
    assert scaled.status == plain.status


def test_forecast_moves_with_an_offset():
    y = series(100) + 0.02 * np.random.default_rng(1).standard_normal(100)
    assert forecast(y - 50, 1000).value + 50 == pytest.approx(forecast(y, 1000).value, abs=1e-5)


# A straight fall has no asymptote in sight: the plain fit runs far below zero.
FALL = np.linspace(1.0, 0.2, 50)


def test_bounded_forecast_of_losses_that_are_never_negative_is_not_negative():
    assert forecast(FALL, 5000).value < -1
    assert forecast(FALL, 5000, bounded=True).value >= 0


def test_bounded_forecast_falls_at_most_one_more_probe_length_at_the_final_slope():
    y = FALL - 10
    slope = (y[-1] - y[0]) / 49 * 50
    assert forecast(y, 5000).value < y[-1] + 2 * slope
    assert forecast(y, 5000, bounded=True).value == pytest.approx(y[-1] + slope, abs=1e-2)


@given(
    arrays(float, st.integers(4, 120), elements=st.floats(0, 100)),
    st.integers(1, 20),
)
def test_bound_only_ever_raises_a_forecast_and_holds(y, lengths):
    plain, bounded = forecast(y, lengths * y.size), forecast(y, lengths * y.size, bounded=True)
    assert bounded.value >= plain.value
    assert bounded.value >= 0


def test_bound_leaves_a_good_forecast_alone():
    y = series(100)
    assert forecast(y, 1000, bounded=True).value == pytest.approx(forecast(y, 1000).value, abs=1e-3)


@pytest.mark.parametrize("method", ["exponential", "last"])
@pytest.mark.parametrize("bounded", [False, True])
@given(
    y=arrays(float, st.integers(1, 60), elements=st.floats(allow_nan=False, allow_infinity=False)),
    lengths=st.floats(1, 100),
    every=st.sampled_from([1, 7, 50]),
)
@example(y=np.array([1.7e308, -1.7e308, 1.7e308, 0.0, 1.0]), lengths=10.0, every=1)
@example(y=np.array([5e-324, 0.0, 0.0, 1e-310, 0.0]), lengths=10.0, every=1)
@example(y=np.array([1e150, 1e-150, 1e160, 1e200, 1e-200]), lengths=10.0, every=1)
def test_no_finite_series_makes_a_forecast_fail(y, lengths, every, method, bounded):
    found = forecast(y, lengths * every * y.size, every=every, method=method, bounded=bounded)
    assert not math.isnan(found.value)
    assert (found.status == "diverged") == math.isinf(found.value)


def test_impossible_arguments_are_refused():
    with pytest.raises(ValueError, match="must not be empty"):
        forecast([], 10)
    with pytest.raises(ValueError, match=r"before the last loss \(step 100\), got 99"):
        forecast([1.0] * 10, 99, every=10)


def test_probe_is_judged_as_the_settings_have_it():
    y = FALL
    assert forecast_probe(Settings(), y, 500, 1) == forecast(y, 500)
    assert forecast_probe(Settings(forecast="last"), y, 500, 1).value == y[-1]
    assert forecast_probe(Settings(bounded_forecast=True), y, 5000, 1) == forecast(y, 5000, bounded=True)
    assert forecast_probe(Settings(rounds=2), y, 5000, 50) == forecast(y, 5000, every=50, rounds=2)


def test_probe_longer_than_a_stage_that_was_cut_is_judged_at_its_own_end():
    assert forecast_probe(Settings(), FALL, 30, 1) == forecast(FALL, 50)
