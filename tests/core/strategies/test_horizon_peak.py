"""The arithmetic from miniature runs' losses to the peak; whole searches are in `test_horizon.py`."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autolrs.core.settings import Settings
from autolrs.core.strategies.horizon_peak import (
    DESCENTS,
    UNUSUAL,
    bottom,
    centre,
    correction,
    fell_deep,
    half_way,
    shortfalls,
    weights,
)

LOSSES = st.dictionaries(st.integers(-8, 4), st.floats(0.01, 10.0), min_size=1, max_size=7)


@given(LOSSES, st.floats(10.0, 100.0), st.floats(1e-3, 1e3), st.floats(-50.0, 50.0))
def test_shares_add_up_and_the_centre_lies_among_the_octaves_whatever_the_scale(losses, start, scale, offset):
    short = shortfalls(losses, start)
    assert min(short.values()) == 0.0 and sum(weights(short).values()) == pytest.approx(1.0)
    assert min(losses) - 1e-9 <= centre(short) <= max(losses) + 1e-9
    assert shortfalls(_times(losses, scale), scale * start) == pytest.approx(short, abs=1e-6)
    if min(losses.values()) < 0 or not fell_deep(start, min(losses.values())):  # or else where 0 lies matters
        moved = {octave: loss + abs(offset) for octave, loss in losses.items()}
        assert shortfalls(moved, start + abs(offset)) == pytest.approx(short, abs=1e-6)


def _times(losses, scale):
    return {octave: scale * loss for octave, loss in losses.items()}


@given(LOSSES, st.floats(7.0, 1e6), st.floats(7.0, 1e6))
def test_after_a_deep_fall_it_does_not_matter_from_where(losses, once, again):
    best = min(losses.values())
    assert fell_deep(once * best, best) and fell_deep(again * best, best)
    assert shortfalls(losses, once * best) == shortfalls(losses, again * best)


def test_half_way_is_an_octave_at_the_most_and_nothing_where_the_case_is_another_one():
    assert half_way(0.02, 0.01) == pytest.approx(0.02 / 2**0.5) and half_way(0.01, 0.01) == 0.01
    assert half_way(0.01, 0.15) == pytest.approx(0.02) and half_way(0.15, 0.01) == pytest.approx(0.075)
    assert half_way(0.01, 0.01 * 2.0 ** (UNUSUAL + 0.1)) == 0.01


def test_of_equals_the_centre_is_the_middle_and_of_one_clear_winner_it_is_that_one():
    assert centre(shortfalls({-4: 1.0, -3: 1.0, -2: 1.0}, 2.0)) == pytest.approx(-3.0)
    assert centre(shortfalls({-4: 1.5, -3: 1.0, -2: 1.5}, 2.0)) == pytest.approx(-3.0)
    assert centre(shortfalls({-4: 1.5, -3: 1.5, -2: 1.0}, 2.0)) == pytest.approx(-2.011, abs=0.001)


def test_a_run_that_was_stopped_has_no_share_and_if_all_were_nobody_has():
    short = shortfalls({-3: 1.0, -2: math.inf}, 2.0)
    assert weights(short) == {-3: 1.0, -2: 0.0} and centre(short) == -3.0
    assert weights(shortfalls({-3: math.inf, -2: math.inf}, 2.0)) == {-3: 0.0, -2: 0.0}
    assert shortfalls({}, 2.0) == {}


@pytest.mark.parametrize("share", [-0.4, -0.2, 0.0, 0.2, 0.4])
def test_a_best_lr_between_two_that_were_tried_is_found_between_them(share):
    found = centre({octave: 0.1 * (octave + 3 - share) ** 2 for octave in (-4, -3, -2)})
    assert found == pytest.approx(-3 + share, abs=0.13)


@pytest.mark.parametrize(
    ("losses", "where"),
    [
        ([2, 1, 2], 0.0),
        ([2, 1, 4], -0.25),
        ([4, 1, 2], 0.25),
        ([1, 1, 2], -0.5),
        ([1, 1, 1], 0.0),
        ([2, 1], 0.0),
        ([2, 1, math.inf], 0.0),
        ([1, 2, 1], 0.0),
    ],
)
def test_the_landmark_lies_towards_the_lower_neighbour_as_far_as_a_parabola_says(losses, where):
    assert bottom(np.array(losses, float)) == where


@pytest.mark.parametrize(("averaging", "usual"), [(True, 0.85), (False, 1.1)])
def test_a_usual_task_gets_the_setting_however_long_it_runs(averaging, usual):
    best = math.exp(-DESCENTS[1])
    for total in (500, 1000, 5000):
        config = Settings.make(strategy="horizon", total_steps=total, averaging=averaging)
        assert correction(config, 1.0, best) == pytest.approx(usual)
