"""RAdam's steps are still small in miniature runs, Adagrad's still large: these want another LR than the whole run."""

from __future__ import annotations

import math

import pytest
from searches import searched

from autolrs.core.first_steps import in_run
from autolrs.core.settings import Settings
from autolrs.core.strategies.horizon_choice import choose
from autolrs.core.strategies.horizon_plan import mini_steps
from autolrs.core.strategies.horizon_ramp import landmark
from autolrs.core.strategies.horizon_search import first_offsets

LEARNED = [(-4, 1.0), (-5, 1.01), (-3, 1.3), (-6, 1.3)]
NOTHING = [(-4, 1.99), (-5, 1.98), (-3, 1.985), (-6, 1.985)]
BETA = 0.999


@pytest.mark.parametrize("total", [600, 5000, 200_000])
@pytest.mark.parametrize("minis", [LEARNED, NOTHING, []])
def test_the_peak_is_lowered_by_what_steps_grow(total, minis):
    plain, before = choose(searched(minis, total=total))
    state = searched(minis, total=total, rectified=BETA)
    peak, why = choose(state)
    times = in_run(mini_steps(state.settings), state.settings) / in_run(total, state.settings)
    assert peak == pytest.approx(plain * times) and (times < 0.25 or total == 200_000)
    assert f", x {times:.2g} since the optimizer's steps are still small there" in why
    assert "steps are still small" not in before


@pytest.mark.parametrize(("decay", "shrink"), [(0.9, 1.016), (0.99, 1.874), (1.0, 7.07)])
@pytest.mark.parametrize("minis", [LEARNED, NOTHING, []])
def test_the_peak_is_raised_by_what_steps_shrink(decay, shrink, minis):
    plain, _ = choose(searched(minis))
    state = searched(minis, uncorrected=decay)
    peak, why = choose(state)
    times = in_run(mini_steps(state.settings), state.settings) / in_run(5000, state.settings)
    assert peak == pytest.approx(min(plain * times, 10.0)) and times == pytest.approx(shrink, rel=0.005)
    assert f", x {times:.2g} since the optimizer's steps are still large there" in why


@pytest.mark.parametrize("total", [600, 5000])
def test_the_search_begins_where_its_small_steps_are_as_large_as_usual(total):
    state = searched([], total=total)
    usual = landmark(state) * 2.0**-8
    small = in_run(mini_steps(state.settings), Settings(rectified=BETA))
    found = first_offsets(searched([], total=total, usual_lr=usual, rectified=BETA))
    assert found == first_offsets(searched([], total=total, usual_lr=usual / small))


def test_half_way_to_what_is_usual_goes_by_the_steps_of_the_whole_run():
    plain, _ = choose(searched(LEARNED, rectified=BETA))
    grown = in_run(5000, Settings(rectified=BETA))
    usual = 2 * plain * 2.0**1.5 * grown  # of short runs, by steps as large as Adam's
    peak, why = choose(searched(LEARNED, usual_lr=usual, rectified=BETA))
    assert math.log2(peak / plain) == pytest.approx(0.75)
    assert f"half-way to {usual / 2 / grown:.3g}, which is usual of longer runs" in why
    assert choose(searched(NOTHING, usual_lr=usual, rectified=BETA))[0] == pytest.approx(usual / 2 / grown)


def test_a_peak_stays_inside_the_interval():
    assert choose(searched(LEARNED, lr=(0.05, 1.0), rectified=BETA))[0] >= 0.05
