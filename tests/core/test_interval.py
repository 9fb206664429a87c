import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autolrs.core.interval import conclude, find_interval, ramp

LRS = np.geomspace(1e-7, 10.0, 100)


def range_losses(begin=1e-4, end=1e-1, blow_up=1.0, noise=0.0, offset=0.0, scale=1.0, seed=0):
    """Flat, a fall between `begin` and `end`, then an explosion."""
    x = np.log10(LRS)
    fall = np.clip((x - math.log10(begin)) / (math.log10(end) - math.log10(begin)), 0, 1)
    up = np.exp(np.minimum(np.maximum(x - math.log10(blow_up), 0) * 8, 50)) - 1
    y = 2.3 - 1.5 * fall + up + noise * np.random.default_rng(seed).standard_normal(len(x))
    return offset + scale * y


def test_ramp_grows_geometrically_by_single_steps():
    profile = ramp(5, (1e-4, 1.0))
    assert [segment.steps for segment in profile] == [1] * 5
    np.testing.assert_allclose([segment.lr_start for segment in profile], np.geomspace(1e-4, 1.0, 5))


@pytest.mark.parametrize("noise", [0.0, 0.02, 0.1])
@pytest.mark.parametrize(("offset", "scale"), [(0.0, 1.0), (0.0, 1e-6), (0.0, 1e6), (-50.0, 1.0)])
def test_interval_is_where_the_loss_falls(noise, offset, scale):
    low, high = find_interval(LRS, range_losses(noise=noise, offset=offset, scale=scale))
    assert 1e-5 < low < 1e-3
    assert 3e-2 < high < 1.0


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_what_comes_after_a_loss_that_is_not_finite_is_ignored(bad):
    y = range_losses()
    y[LRS > 2.0] = bad
    low, high = find_interval(LRS, y)
    assert low < 1e-3
    assert high < 2.0


def test_narrow_fall_is_widened_to_two_decades():
    low, high = find_interval(LRS, range_losses(begin=1e-2, end=3e-2))
    assert high / low >= 100 * (1 - 1e-9)


@pytest.mark.parametrize(
    "losses",
    [
        [],
        [1.0],
        [1.0] * 7,
        [1.0] * 100,
        np.linspace(1, 2, 100),
        [math.nan] * 100,
        [math.inf] * 100,
    ],
    ids=["none", "one", "seven", "constant", "rising", "nan", "inf"],
)
def test_loss_that_never_falls_gives_three_decades_around_the_optimizers_lr_and_says_so(losses):
    assert find_interval(LRS, losses) is None
    verdict = conclude(LRS, losses, 0.02)
    assert (verdict.lr_min, verdict.lr_max) == (pytest.approx(2e-4), pytest.approx(0.2))
    assert "saw no fall" in verdict.note
    assert "the optimizer's LR 0.02" in verdict.note


@pytest.mark.parametrize("base_lr", [None, 0.0, math.nan, math.inf, -1.0])
def test_optimizer_without_a_usable_lr_falls_back_to_a_thousandth(base_lr):
    verdict = conclude(LRS, [1.0] * 100, base_lr)
    assert (verdict.lr_min, verdict.lr_max) == (pytest.approx(1e-5), pytest.approx(1e-2))
    assert "around 1e-3" in verdict.note


@pytest.mark.parametrize("n", [30, 100, 300])
def test_noise_alone_is_rarely_taken_for_a_fall(n):
    lrs = np.geomspace(1e-7, 10.0, n)
    noise = [1 + 0.1 * np.random.default_rng(seed).standard_normal(n) for seed in range(60)]
    assert sum(find_interval(lrs, losses) is not None for losses in noise) <= 6


def test_fall_is_found_in_strong_noise():
    assert all(find_interval(LRS, range_losses(noise=0.3, seed=seed)) for seed in range(30))


def test_found_interval_says_how_it_was_found():
    assert conclude(LRS, range_losses(), None).note == "range test over 100 steps"


@given(st.lists(st.floats(-1e6, 1e6) | st.sampled_from([math.nan, math.inf, -math.inf]), max_size=100))
def test_any_series_gives_a_proper_interval_of_two_decades_or_more(losses):
    verdict = conclude(LRS, losses, None)
    assert 0 < verdict.lr_min <= verdict.lr_max / 99
    assert verdict.lr_max <= 10.0
