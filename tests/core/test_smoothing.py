import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.interpolate import make_lsq_spline

from autolrs.core.smoothing import smooth


def noisy_decay(n, seed=0, noise=0.05):
    t = np.arange(1, n + 1)
    return 2 * np.exp(-3 * t / n) + 1 + noise * np.random.default_rng(seed).standard_normal(n)


def slow(y, rounds=10, share=0.03, pieces=8):
    """Appendix A.3 by scipy's splines: fit, drop the farthest 3 % of all if they lie in the first half, ten times."""
    n = len(y)
    x = np.linspace(0.0, 1.0, n)
    knots = np.concatenate([[0.0] * 3, np.linspace(0, 1, pieces + 1)[1:-1], [1.0] * 3])
    kept = np.arange(n)
    for _ in range(rounds):
        fit = make_lsq_spline(x[kept], y[kept], knots, k=2)(x)
        order = kept[np.argsort(np.abs(y - fit)[kept])]
        far = order[len(order) - round(share * n) :]
        kept = np.setdiff1d(kept, far[far < n // 2])
    return make_lsq_spline(x[kept], y[kept], knots, k=2)(x), kept


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("n", [100, 200, 800])
def test_ten_rounds_drop_the_farthest_three_percent_of_the_first_half(n, seed):
    y = noisy_decay(n, seed, noise=0.2)
    expected, kept = slow(y)
    assert len(kept) < n
    np.testing.assert_allclose(smooth(y), expected, atol=2e-4)


def test_number_of_rounds_and_share_are_obeyed():
    y = noisy_decay(200, 3, noise=0.2)
    for rounds, share in [(0, 0.03), (1, 0.03), (5, 0.02), (10, 0.0)]:
        expected, _ = slow(y, rounds, share)
        np.testing.assert_allclose(smooth(y, rounds=rounds, outlier_fraction=share), expected, atol=2e-4)


# The offset is kept within what doubles resolve beside the scale, or rounding of the input itself would be tested.
@pytest.mark.parametrize(
    ("scale", "offset"), [(1e-6, 0.0), (1e6, 0.0), (1.0, -50.0), (1.0, 1e4), (1e6, -50.0), (1e-6, -1e-4), (-1.0, 0.0)]
)
@pytest.mark.parametrize("n", [4, 7, 17, 100, 801])
def test_scale_and_offset_pass_through(n, scale, offset):
    y = noisy_decay(n, n)
    np.testing.assert_allclose((smooth(scale * y + offset) - offset) / scale, smooth(y), rtol=0, atol=1e-8)


@pytest.mark.parametrize("n", range(4, 19))
def test_short_series_work(n):
    smoothed = smooth(noisy_decay(n))
    assert smoothed.shape == (n,)
    assert np.isfinite(smoothed).all()
    assert smoothed[0] > smoothed[-1]


@pytest.mark.parametrize("n", [0, 1, 3])
def test_fewer_than_four_values_are_refused(n):
    with pytest.raises(ValueError, match=f"at least 4 values, got {n}"):
        smooth([1.0] * n)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_values_that_are_not_finite_are_refused(bad):
    with pytest.raises(ValueError, match="must be finite"):
        smooth([1.0, 2.0, bad, 3.0, 4.0])


@pytest.mark.parametrize("n", [50, 100, 400])
@pytest.mark.parametrize("place", [0, 0.1, 0.3, 0.48])
def test_spike_in_the_first_half_is_removed(n, place):
    clean = noisy_decay(n, noise=0.0)
    spiked = clean.copy()
    spiked[int(place * n)] += 100.0
    assert np.abs(smooth(spiked) - clean).max() < 0.05


@pytest.mark.parametrize("place", [0.5, 0.7, 0.99])
def test_spike_in_the_second_half_stays_in_the_fit(place):
    clean = noisy_decay(100, noise=0.0)
    spiked = clean.copy()
    at = int(place * 100)
    spiked[at] += 100.0
    assert smooth(spiked)[at] > clean[at] + 5


def test_short_series_lose_the_same_share_as_long_ones():
    # 3 % of 10 points is no whole point, but ten rounds of it are three.
    clean = np.linspace(2, 1, 10)
    spiked = clean.copy()
    spiked[2] += 50
    assert np.abs(smooth(spiked) - clean).max() < 0.5


@given(st.tuples(st.floats(-5, 5), st.floats(-5, 5), st.floats(-5, 5)), st.integers(4, 300))
def test_quadratics_are_met_exactly(coefficients, n):
    t = np.linspace(0, 1, n)
    y = np.polyval(coefficients, t)
    np.testing.assert_allclose(smooth(y), y, atol=1e-8)


@given(arrays(float, st.integers(4, 60), elements=st.floats(-1e9, 1e9)))
def test_any_finite_series_gives_a_finite_one(y):
    smoothed = smooth(y)
    assert smoothed.shape == y.shape
    assert np.isfinite(smoothed).all()


def test_constant_series_is_given_back_as_a_copy():
    y = np.full(10, 0.1)
    smoothed = smooth(y)
    assert smoothed is not y
    assert smoothed.tolist() == y.tolist()


def test_input_is_left_alone():
    y = noisy_decay(50)
    before = y.copy()
    smooth(y)
    assert y.tolist() == before.tolist()
