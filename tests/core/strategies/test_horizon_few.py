"""Searches of short runs, with few miniature runs of few steps, and what SGD does otherwise in longer ones."""

from __future__ import annotations

import math

import pytest
from searches import ending, searched

from autolrs.core import engine
from autolrs.core.settings import Settings
from autolrs.core.strategies.horizon import Horizon
from autolrs.core.strategies.horizon_answers import answered
from autolrs.core.strategies.horizon_choice import BELOW_EDGE_SLOWLY, RAMP_ONLY, choose, horizon_octaves
from autolrs.core.strategies.horizon_plan import compares
from autolrs.core.strategies.horizon_ramp import edge, landmark
from autolrs.core.strategies.horizon_search import limits, next_offset
from autolrs.core.types import Asked, Forecast, Probed
from autolrs.run.session import Session, drive
from autolrs.testing.simulated import SimulatedHost

START = 1.975  # the mean of the ramp's first losses


@pytest.mark.parametrize(
    ("minis", "octave"),
    [
        ([], -2),
        ([(-2, 1.0)], -1),  # not -3: it is not known yet whether that is the way down
        ([(-2, 1.5), (-1, 1.0)], 1),
        ([(-2, 1.0), (-1, 1.5)], -3),
        ([(-2, math.inf), (-1, math.inf)], -4),
    ],
)
def test_a_short_run_looks_down_only_after_it_knows_the_slope(minis, octave):
    assert next_offset(searched(minis, total=600)) == octave


@pytest.mark.parametrize(("total", "share", "trusted"), [(600, 0.92, False), (600, 0.88, True), (1100, 0.92, True)])
def test_a_short_run_that_has_hardly_learned_goes_by_the_edge(total, share, trusted):
    loss = share * START
    state = searched([(-2, loss), (-1, loss + 0.01)], total=total)
    peak, why = choose(state)
    assert ("too little to tell" not in why) == trusted == answered(state)
    if not trusted:
        assert peak == pytest.approx(edge(state) * 2.0**BELOW_EDGE_SLOWLY)


@pytest.mark.parametrize(("descent", "less"), [(0.5, 0.3), (1.2, 0.3), (1.5, 0.3 + 0.18), (1.8, 0.3 + 0.36), (5, 0.66)])
def test_the_further_down_sgd_comes_the_less_is_taken_off(descent, less):
    ended = [(-2, START * math.exp(-descent))]
    others, sgd = (horizon_octaves(searched(ended, proportional_steps=own)) for own in (False, True))
    assert others - sgd == pytest.approx(less, abs=0.006)


@pytest.mark.parametrize(
    ("descent", "more", "normalised"),
    [(0.4, -0.3, -1.3), (0.3, 0.1, -1.3), (0.1, 0.9, -1.3), (0.5, -0.3, -0.8), (0.7, -0.3, -0.3)],
)
def test_from_a_plateau_more_is_taken_off_sgd_without_norms_and_less_with_them(descent, more, normalised):
    ended = [(-3, 1.9), (-2, START * math.exp(-descent)), (-1, 1.9)]
    others = horizon_octaves(searched(ended, normalised=True))
    assert others == horizon_octaves(searched(ended))
    for norms, taken in ((False, more), (True, normalised)):
        sgd = horizon_octaves(searched(ended, proportional_steps=True, normalised=norms))
        assert sgd - others == pytest.approx(taken, abs=0.05)


def test_what_may_be_stopped_does_not_depend_on_the_order_of_the_first_ones():
    curves = [ending(-2, 1.0)]
    assert limits(searched(curves, total=600), -1, 20, 2) == () != limits(searched(curves, total=600), -3, 20, 2)


@pytest.mark.parametrize("breaks", [True, False])
@pytest.mark.parametrize("proportional", [True, False])
def test_by_the_ramp_alone_sgd_goes_by_the_edge_of_divergence(breaks, proportional):
    config = Settings.make(strategy="horizon", total_steps=200, proportional_steps=proportional)
    now = engine.evolve(None, engine.start(config))
    now = engine.evolve(now, Asked(Horizon().decide(now)))
    losses = [2.0 - 0.05 * i if i < 14 or not breaks else 9.0 for i in range(20)]
    now = engine.evolve(now, Probed(0, 0, 10.0, 20, tuple(losses), Forecast(0, 0, 0, 0, "ok")))
    peak, why = choose(now)
    if proportional and breaks:
        assert peak == pytest.approx(edge(now) * 2.0**BELOW_EDGE_SLOWLY) and "below the edge of divergence" in why
    else:
        assert peak == pytest.approx(landmark(now) * 2.0**RAMP_ONLY) and "below the ramp's landmark" in why


@pytest.mark.parametrize("total", [300, 450, 700, 1000, 1500, 1999])
@pytest.mark.parametrize("validation", [False, True])
def test_searches_of_sgd_stay_under_the_ceiling(total, validation):
    host = SimulatedHost(seed=1)
    config = Settings.make(strategy="horizon", total_steps=total, proportional_steps=True)
    session = Session(host, config, Horizon(), stream=host.stream, validation=validation)
    state = drive(session, host)
    assert state.committed_steps == total
    assert state.raw_steps + state.evaluations * config.evaluate_steps <= 1.15 * total + 1e-6


@pytest.mark.parametrize(
    ("total", "cost", "kept"),
    [
        (300, 3.0, True),  # the ramp alone: there is money left
        (500, 3.0, True),  # two runs either way
        (500, 6.0, False),  # two instead of one
        (600, 3.0, True),  # three fit beside it
        (600, 5.0, False),
        (700, 12.5, False),
        (1000, 12.5, True),
        (1000, 20.0, False),  # more than a quarter of all there is
    ],
)
def test_a_short_run_would_rather_search_than_compare_at_the_end(total, cost, kept):
    config = Settings.make(strategy="horizon", total_steps=total, averaging=True, evaluate_cost=cost)
    assert compares(config) == kept
