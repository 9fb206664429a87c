"""What is usual of such a network, where that is known: the search begins there, and the peak goes towards it."""

from __future__ import annotations

import math

import numpy as np
import pytest
from searches import ending, searched

from autolrs.core.settings import Settings
from autolrs.core.strategies.horizon import Horizon
from autolrs.core.strategies.horizon_answers import answered, by_edge
from autolrs.core.strategies.horizon_choice import choose
from autolrs.core.strategies.horizon_peak import LONGER
from autolrs.core.strategies.horizon_ramp import landmark
from autolrs.core.strategies.horizon_search import first_offsets, next_offset
from autolrs.run.session import Session, drive
from autolrs.testing.simulated import SimulatedHost

LEARNED = [(-4, 1.0), (-5, 1.01), (-3, 1.3), (-6, 1.3)]
NOTHING = [(-4, 1.99), (-5, 1.98), (-3, 1.985), (-6, 1.985)]
TOTALS = [600, 5000]
MARK = {total: landmark(searched([], total=total)) for total in TOTALS}


def longer(total):
    """The share of what is usual of short runs that a run of this length wants."""
    return LONGER if total == 5000 else 1.0


def told(minis, total=5000, octave=-4.0, **values):
    """The state of a search that knows a usual LR, so many octaves from the landmark."""
    return searched(minis, total=total, usual_lr=MARK[total] * 2.0**octave, **values)


@pytest.mark.parametrize(
    ("octave", "short", "long"),
    [
        (-4, (-4, -3), (-4, -5)),
        (
            -14,
            (-14, -13),
            (-14, -15),
        ),  # the landmark is far too high, as where a ramp never breaks
        (-2, (-2, -1), (-2, -3)),
        (2, (0, 1), (0, -1)),  # half-way between what both say
        (3, (0, 1), (0, -1)),
    ],
)
def test_a_search_begins_at_the_usual_lr(octave, short, long):
    for total, first in ((600, short), (5000, long)):
        state = told([], total, octave)
        assert first_offsets(state) == first and next_offset(state) == first[0]
        assert next_offset(told([(first[0], 1.0)], total, octave)) == first[1]


@pytest.mark.parametrize("total", TOTALS)
@pytest.mark.parametrize(
    "values", [{"trained_before": True}, {"proportional_steps": True, "normalised": True}, {"lr": (0.1, 1.0)}]
)
def test_not_of_old_networks_nor_of_sgd_nor_outside_the_interval(total, values):
    lr = MARK[total] * 2.0**-9
    known, unknown = (searched([], total=total, usual_lr=usual, **values) for usual in (lr, None))
    assert first_offsets(known) == first_offsets(unknown)


@pytest.mark.parametrize("total", TOTALS)
def test_the_peak_goes_half_way_to_what_is_usual_by_an_octave_at_the_most(total):
    plain, _ = choose(searched(LEARNED, total=total))
    for away in (-1.0, 0.5, 1.5, -3.0, 3.0):
        usual = plain * 2.0**away / longer(total)
        state = searched(LEARNED, total=total, usual_lr=usual)
        if total == 5000 and away == 3.0:
            continue  # it lies where a miniature run of this search was no good
        peak, why = choose(state)
        assert math.log2(peak / plain) == pytest.approx(min(max(away / 2, -1.0), 1.0))
        assert f"half-way to {longer(total) * usual:.3g}, which is usual" in why
        assert ("of longer runs" in why) == (total == 5000)


@pytest.mark.parametrize("total", TOTALS)
@pytest.mark.parametrize("away", [-4.2, 4.2])
def test_what_is_far_from_usual_is_another_case(total, away):
    """As a network that was trained before and does not show it, and wants a hundredth of it."""
    plain, words = choose(searched(LEARNED, total=total))
    assert choose(searched(LEARNED, total=total, usual_lr=plain * 2.0**away / longer(total))) == (plain, words)


@pytest.mark.parametrize(("loss", "kept"), [(1.6, True), (1.2, False)])
def test_a_longer_run_keeps_from_what_was_no_good_in_miniature(loss, kept):
    """As a field of sines, which wants a thirtieth of the usual LR."""
    minis = [(-4, loss), (-5, 1.1), (-7, 1.0), (-3, math.inf)]
    plain, _ = choose(searched(minis))
    peak, why = choose(told(minis))
    assert (peak == plain) == kept and ("usual" not in why) == kept
    near = [(-4, loss), (-5, 1.0), (-6, 1.1)]  # a look of 20 steps does not know
    assert "half-way" in choose(told(near, 600))[1]


def test_one_that_was_stopped_was_no_good_either():
    minis = [(-5, 1.0), (-6, 1.1), (-4, math.inf)]
    assert "usual" not in choose(told(minis))[1]


@pytest.mark.parametrize("total", TOTALS)
def test_where_miniature_runs_tell_nothing_the_usual_lr_is_the_peak(total):
    state = told(NOTHING, total)
    assert not answered(state) and not by_edge(state)
    peak, why = choose(state)
    assert peak == pytest.approx(longer(total) * state.settings.usual_lr) and "is taken instead" in why
    # However far from it the ramp broke, which says little of Adam; but of an old network the edge is asked.
    assert choose(told(NOTHING, total, -14.0))[0] == pytest.approx(longer(total) * MARK[total] * 2.0**-14)
    assert "usual" not in choose(told(NOTHING, total, trained_before=True))[1]


def test_it_is_said_to_be_taken_where_the_interval_cuts_it_too():
    top = MARK[5000] * 2.0**-5.5
    state = searched([(-7, 1.99), (-8, 1.98)], usual_lr=4 * top, lr=(1e-6, top))
    peak, why = choose(state)
    assert peak == pytest.approx(top) and "is taken instead" in why


@pytest.mark.parametrize("total", TOTALS)
def test_where_all_miniature_runs_diverged_it_is_not(total):
    state = told([(-4, math.inf), (-5, math.inf), (-7, math.inf)], total)
    peak, why = choose(state)
    assert peak < MARK[total] * 2.0**-7 and "is taken instead" not in why


def test_an_interval_that_ends_too_low_is_used_to_its_end():
    minis, lr = [(-1, 1.1), (-2, 1.3), (0, 1.0)], (1.0, 8.0)  # the landmark is 4.2
    plain, why = choose(searched(minis, lr=lr))
    assert "seems to lie above" in why and choose(searched(minis, lr=lr, usual_lr=plain / 2)) == (plain, why)


def test_far_below_what_is_usual_a_longer_search_goes_down_by_two_octaves():
    assert next_offset(told([(-4, 1.9), (-5, 1.2)])) == -7
    assert next_offset(told([(-4, 1.21), (-5, 1.2)])) == -6  # no slope to speak of
    assert next_offset(told([(-4, 1.9), (-5, 1.2), (-7, 1.0)])) == -9
    assert next_offset(told([(-4, 1.9), (-5, 1.2), (-7, 1.6), (-3, 1.9)])) == -6  # back into the gap
    assert next_offset(told([(-4, 1.9), (-3, 1.9), (-5, 1.2)], 600)) == -6
    assert next_offset(searched([(-2, 1.9), (-3, 1.2)])) == -4


def test_it_begins_well_with_one_run_inside_the_interval():
    mark = MARK[5000]
    state = told([(-4, 1.0)], lr=(mark * 2.0**-4.2, mark * 2.0**-3.8))
    assert next_offset(state) is None


@pytest.mark.parametrize("total", [300, 700, 1500, 6000])
@pytest.mark.parametrize("usual", [1e-5, 1e-3, 0.1, 5.0])
@pytest.mark.parametrize("parallel", [1, 3])
def test_wherever_it_lies_the_ceiling_holds(total, usual, parallel):
    host = SimulatedHost(seed=2)
    config = Settings.make(strategy="horizon", total_steps=total, usual_lr=usual, parallel=parallel)
    state = drive(Session(host, config, Horizon(), stream=host.stream), host)
    assert state.committed_steps == total and state.raw_steps <= 1.15 * total + 1e-6
    assert np.isfinite(host.evaluate())


def test_the_losses_that_give_a_run_up_are_not_asked_of_the_first_ones():
    from autolrs.core.strategies.horizon_search import limits

    curves = [ending(-4, 1.0)]
    assert limits(told(curves), -5, 100, 12) == () != limits(told(curves), -3, 100, 12)


@pytest.mark.parametrize(("fall", "wanted"), [(0.5, 0.5), (1.55, 0.5), (1.7, 0.5**0.5), (1.79, 0.5**0.05)])
def test_there_is_no_jump_where_a_fall_begins_to_be_deep(fall, wanted):
    best = 1.99 * math.exp(-fall)
    minis = [(-4, best), (-5, 1.01 * best), (-3, 1.1 * best), (-6, 1.1 * best)]
    plain, _ = choose(searched(minis))
    peak, why = choose(searched(minis, usual_lr=plain))
    assert peak / plain == pytest.approx(wanted**0.5, rel=0.02) and "of longer runs" in why
