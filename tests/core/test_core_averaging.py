"""The numbers of averaging: what z, x and y come to, against the three lines of the formula."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autolrs.core.averaging import AVERAGED_STEPS, SHARPNESS, by_default, is_better, moves, share, weight


@pytest.mark.parametrize("accumulates", [True, False])
@given(momentum=st.floats(0.1, 0.99), steps=st.lists(st.floats(-1.0, 1.0), min_size=2, max_size=30))
def test_moves_are_the_formula_of_z_x_and_y(accumulates, momentum, steps):
    """z goes as far as the optimizer stepped (SGD: as with its whole momentum), x is its average, y lies between."""
    b = share(momentum)
    longer = (1 - b) / (1 - momentum) if accumulates else 1.0
    z = x = y = x_here = y_here = 1.0 + steps[0]  # after the first step all are the same
    v = 0.0
    for t, step in enumerate(steps[1:], start=1):
        z += longer * step
        x += weight(t, SHARPNESS) * (z - x)
        y = (1 - b) * z + b * x
        by = moves(t, momentum, accumulates=accumulates)
        v = by.keep * v + by.scale * (y_here + step - x_here)
        x_here += by.c * v
        y_here = x_here + by.out * v
    assert (x_here, y_here) == pytest.approx((x, y), rel=1e-6, abs=1e-6)


def test_a_step_weighs_its_number_to_the_fifth():
    """x after T steps is the mean of the iterates by about t^5."""
    total = 400
    iterates = np.random.default_rng(0).normal(size=total)
    x = 0.0
    for t, z in enumerate(iterates):
        x += weight(t, SHARPNESS) * (z - x)
    weights = np.arange(1, total + 1) ** SHARPNESS
    assert x == pytest.approx(np.average(iterates, weights=weights), abs=0.02)


def test_half_a_momentum_twice_is_the_whole():
    assert 1 - (1 - share(0.9)) ** 2 == pytest.approx(0.9)
    assert share(0.0) == 0.0


def test_averaging_begins_at_the_shortest_run_that_was_measured():
    assert not by_default(None) and not by_default(AVERAGED_STEPS - 1) and by_default(AVERAGED_STEPS)


@pytest.mark.parametrize(
    ("averaged", "raw", "better"),
    [(0.3, 0.31, True), (0.3, 0.2990, True), (0.3, 0.298, False), (-1.0, -1.02, False), (-1.0, -1.004, True)],
)
def test_the_average_is_taken_unless_the_others_are_ahead_by_half_a_per_cent(averaged, raw, better):
    assert is_better(averaged, raw) is better


def test_an_average_that_is_not_finite_is_not_taken():
    assert not is_better(np.nan, 1.0) and not is_better(np.inf, 1.0) and is_better(1.0, np.nan)
    assert is_better(np.nan, np.nan)  # nothing to choose
