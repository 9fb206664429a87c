"""When a run has clearly overfitted: real series of looks, any scale, chance, losses that are not finite."""

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autolrs.core.overfitting import MIN_LOOKS, overfitted

FALLING = [0.47, 0.42, 0.38, 0.37, 0.34, 0.33, 0.32, 0.32, 0.31, 0.30]
NOISY = [0.47, 0.42, 0.38, 0.366, 0.339, 0.334, 0.324, 0.333, 0.311, 0.295, 0.304, 0.297, 0.299, 0.288, 0.279, 0.281]
RISING = [0.57, 0.50, 0.49, 0.52, 0.58, 0.66, 0.71, 0.80, 0.84, 0.86]
# Looks at 320 pictures while the loss on 10,000 others went on falling, from .36 to .35 after the lowest one.
DRIFTING = [0.513, 0.427, 0.372, 0.375, 0.359, 0.368, 0.340, 0.336, 0.332, 0.321]
DRIFTING += [0.312, 0.301, 0.302, 0.308, 0.309, 0.302, 0.302, 0.304, 0.310, 0.314]


def test_a_rise_that_goes_on_is_told_from_chance():
    assert overfitted(RISING)
    assert not overfitted(FALLING) and not overfitted(NOISY)


def test_what_a_small_validation_set_drifts_by_is_left_alone_and_a_rise_that_goes_on_is_not():
    assert not overfitted(DRIFTING)
    assert overfitted([*DRIFTING, 0.320, 0.326, 0.332])


@pytest.mark.parametrize("looks", [FALLING, NOISY, RISING, DRIFTING])
@pytest.mark.parametrize(("scale", "shift"), [(1e-6, 0.0), (1e6, 0.0), (1.0, -7.0), (3.0, 1e3)])
def test_scale_and_sign_of_the_loss_do_not_matter(looks, scale, shift):
    assert overfitted([scale * loss + shift for loss in looks]) == overfitted(looks)


def test_few_looks_say_nothing():
    assert not any(overfitted(RISING[2 : 2 + n]) for n in range(MIN_LOOKS))
    assert overfitted(RISING[2 : 2 + MIN_LOOKS])


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_an_end_that_is_not_finite_is_clearly_worse_and_one_in_between_is_left_out(bad):
    assert overfitted([*FALLING, bad])
    assert not overfitted([*FALLING[:5], bad, *FALLING[5:]])
    assert not overfitted([bad] * 6)


def test_losses_that_differ_by_chance_alone_are_seldom_taken_for_a_rise():
    generator = random.Random(0)
    found = sum(overfitted([1.0 + generator.gauss(0, 0.01) for _ in range(20)]) for _ in range(1000))
    assert found < 40


@given(st.lists(st.floats(-1e6, 1e6), min_size=0, max_size=30))
def test_a_lowest_end_is_never_overfitted(looks):
    assert not overfitted([*looks, min(looks, default=0.0)])
