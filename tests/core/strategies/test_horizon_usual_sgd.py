"""What is usual of SGD in a network with norms is the peak where miniature runs tell nothing."""

from __future__ import annotations

import pytest
from searches import searched

from autolrs.core.strategies.horizon_answers import answered, by_edge, responses, saw_one_thing
from autolrs.core.strategies.horizon_choice import choose, warmup_share
from autolrs.core.strategies.horizon_peak import centre
from autolrs.core.strategies.horizon_ramp import landmark
from autolrs.core.strategies.horizon_rules import LONGEST_WARMUP
from autolrs.core.strategies.horizon_search import first_offsets, next_offset

NOTHING = [(-2, 1.99), (-3, 1.98), (-4, 1.985)]
LEARNED = [(-2, 1.0), (-3, 1.01), (-1, 1.3), (-4, 1.3)]
DEEP = [(-2, 0.1), (-3, 0.1), (-1, 0.1), (-4, 0.1)]


def sgd(minis, usual=None, **values):
    known = {"proportional_steps": True, "normalised": True, "averaging": True}
    return searched(minis, usual_lr=usual, **{**known, **values})


@pytest.mark.parametrize("away", [-6.0, -2.0, 0.5, 5.0])
def test_where_miniature_runs_tell_nothing_what_is_usual_is_the_peak_wherever_training_breaks(away):
    plain, _ = choose(sgd(NOTHING))
    usual = 2 * plain * 2.0**away
    state = sgd(NOTHING, usual)
    assert by_edge(sgd(NOTHING)) and not by_edge(state) and not answered(state)
    peak, why = choose(state)
    assert peak == pytest.approx(usual / 2) and warmup_share(state) == LONGEST_WARMUP
    assert f"; {usual / 2:.3g}, which is usual of longer runs, is taken instead" in why


@pytest.mark.parametrize("values", [{"trained_before": True}, {"lr": (0.1, 0.11)}])
def test_not_of_old_networks_nor_outside_the_interval(values):
    assert choose(sgd(NOTHING, 0.002, **values))[0] == choose(sgd(NOTHING, **values))[0]


def test_half_of_it_without_averaging_which_takes_half_of_the_momentum():
    plain, averaged = (choose(sgd(NOTHING, 0.06, averaging=averaging)) for averaging in (False, True))
    assert (plain[0], averaged[0]) == (pytest.approx(0.015), pytest.approx(0.03))
    assert "; 0.015, which is usual of longer runs, is taken instead" in plain[1]


def test_not_where_all_miniature_runs_diverged():
    diverged = [(-2, float("inf")), (-3, float("inf"))]
    assert choose(sgd(diverged, 0.06)) == choose(sgd(diverged))


def middle(minis):
    """Where the LRs of these miniature runs did well."""
    state = sgd(minis)
    return landmark(state) * 2.0 ** centre(responses(state))


@pytest.mark.parametrize("minis", [LEARNED, DEEP])
@pytest.mark.parametrize(("away", "one_thing"), [(-8.0, False), (2.4, False), (2.6, True), (8.0, True)])
def test_nor_do_they_tell_it_where_they_did_best_far_below_what_is_usual(minis, away, one_thing):
    """As of a rare class: how rare it is is learned at once, by LRs at which nothing else is."""
    usual = 2 * middle(minis) * 2.0**away
    state, unknown = sgd(minis, usual), sgd(minis)
    assert saw_one_thing(state) == (not answered(state)) == one_thing and not by_edge(state)
    peak, why = choose(state)
    if one_thing:
        assert peak == pytest.approx(min(usual / 2, 10.0)) and warmup_share(state) == LONGEST_WARMUP
        assert "did best far below what is usual" in why and "is taken instead" in why
    else:
        assert (peak, why) == choose(unknown)


@pytest.mark.parametrize("values", [{"trained_before": True}, {"normalised": False}, {"total": 600}])
def test_far_below_usual_counts_for_nothing_in_short_runs_old_networks_or_those_without_norms(values):
    usual = 2 * middle(LEARNED) * 2.0**8
    assert choose(sgd(LEARNED, usual, **values)) == choose(sgd(LEARNED, **values))


@pytest.mark.parametrize("octave", [3, 0])
def test_an_interval_that_ends_below_what_is_usual_is_searched_all_the_same(octave):
    """What counts is how far below its end they did best: 1.4 octaves here, or 4.4."""
    minis = [(octave, 1.0), (octave - 1, 1.01), (octave - 2, 1.3)]
    known, unknown = (sgd(minis, usual, lr=(1e-6, 1e-3)) for usual in (0.06, None))
    assert saw_one_thing(known) == (choose(known) != choose(unknown)) == (octave == 0)
    assert octave or choose(known)[0] == pytest.approx(1e-3)


@pytest.mark.parametrize(("scale", "usual"), [(1e-3, True), (5.9, True), (6.1, False), (64.0, False)])
@pytest.mark.parametrize("minis", [NOTHING, LEARNED])
def test_nothing_is_usual_of_losses_that_may_be_sums(scale, usual, minis):
    """Over a batch, say, with gradients that are so much larger; the ramps know where that breaks."""
    lr = 2 * middle(LEARNED) * 2.0**8
    state, unknown = sgd(minis, lr, scale=scale), sgd(minis, scale=scale)
    assert (choose(state) == choose(unknown)) == (not usual)
    assert by_edge(state) == (not usual and minis is NOTHING)


def test_nor_of_losses_below_0():
    assert choose(sgd(NOTHING, 0.06, offset=-50.0)) == choose(sgd(NOTHING, offset=-50.0))


@pytest.mark.parametrize(
    ("minis", "total"), [(LEARNED, 5000), (DEEP, 5000), (NOTHING, 600), (LEARNED, 600), (DEEP, 600)]
)
def test_elsewhere_it_is_not_asked(minis, total):
    for usual in (1e-4, 0.06):
        known, unknown = (sgd(minis, lr, total=total) for lr in (usual, None))
        assert choose(known) == choose(unknown)
        assert first_offsets(known) == first_offsets(unknown) and next_offset(known) == next_offset(unknown)
