"""What is usual of SGD in a network with norms is the peak where miniature runs tell nothing, and has no other say."""

from __future__ import annotations

import pytest
from searches import searched

from autolrs.core.strategies.horizon_answers import answered, by_edge
from autolrs.core.strategies.horizon_choice import choose, warmup_share
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


@pytest.mark.parametrize(
    ("minis", "total"), [(LEARNED, 5000), (DEEP, 5000), (NOTHING, 600), (LEARNED, 600), (DEEP, 600)]
)
def test_elsewhere_it_is_not_asked(minis, total):
    for usual in (1e-4, 0.06, 1.0):
        known, unknown = (sgd(minis, lr, total=total) for lr in (usual, None))
        assert choose(known) == choose(unknown)
        assert first_offsets(known) == first_offsets(unknown) and next_offset(known) == next_offset(unknown)
