"""Searches of short runs: few miniature runs of few steps; for SGD the highest LR that does well is sought."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from searches import ending, searched

from autolrs.core import engine
from autolrs.core.interval import is_sweep
from autolrs.core.settings import Settings
from autolrs.core.strategies.horizon import (
    BELOW_EDGE_SLOWLY,
    BELOW_UPPER,
    HALVED,
    RAMP_ONLY,
    Horizon,
    anchor,
    answered,
    choose,
    horizon_octaves,
    interval_too_low,
    limits,
    next_offset,
)
from autolrs.core.strategies.horizon_peak import WELL, correction, upper
from autolrs.core.strategies.horizon_plan import compares
from autolrs.core.strategies.horizon_ramp import edge, landmark
from autolrs.core.strategies.horizon_rules import SHORT_SGD
from autolrs.core.types import Asked, Forecast, Probe, Probed
from autolrs.run.session import Session, drive
from autolrs.testing.simulated import SimulatedHost

SGD = {"total": 600, "proportional_steps": True}
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


@pytest.mark.parametrize(
    ("minis", "octave"),
    [
        ([], -2),
        ([(-2, 1.0)], 0),  # two octaves up, as long as that does well
        ([(-2, 1.0), (0, 0.8)], 2),
        ([(-2, 1.0), (0, 1.04)], 2),
        ([(-2, 1.0), (0, 1.2)], -1),  # then between the last that did and the first that did not
        ([(-2, 1.0), (0, math.inf)], -1),
        ([(-2, 1.0), (0, math.inf), (-1, 1.2)], -3),  # then below, while the lowest is the best
        ([(-2, 1.0), (0, math.inf), (-1, 1.2), (-3, 0.9)], -4),
        ([(-2, 1.0), (0, math.inf), (-1, 1.2), (-3, 1.1)], None),
        ([(-2, 1.2), (0, 1.0), (2, 1.5)], 1),
        ([(-2, 1.2), (0, 1.0), (2, 1.5), (1, 1.01)], None),
        ([(-2, math.inf)], -4),
    ],
)
def test_sgd_seeks_the_highest_lr_that_does_well(minis, octave):
    assert next_offset(searched(minis, **SGD)) == octave


def test_beyond_the_interval_nothing_is_tried():
    tried: list[int] = []
    interval = {"lr": (0.1, 1.0), **SGD}
    while (octave := next_offset(searched([(octave, 1.0) for octave in tried], **interval))) is not None:
        tried.append(octave)
    lrs = [landmark(searched([], **interval)) * 2.0**octave for octave in tried]
    assert tried == [-2, 0, 1] and min(lrs) >= 0.1 and max(lrs) <= 1.0


def test_the_peak_lies_below_the_highest_lr_that_did_well_however_flat_the_valley():
    flat = [(-2, 0.5), (0, 0.51), (2, 0.52), (4, math.inf), (3, 0.7)]
    state = searched(flat, **SGD)
    octaves, name = anchor(state)
    short = {octave: (loss - 0.5) / (START - 0.5) for octave, loss in flat}
    assert name == "well up to" and octaves == pytest.approx(upper(short)) and 2 < octaves < 3
    taken = correction(state.settings, START, 0.5) + BELOW_UPPER
    assert horizon_octaves(state) == pytest.approx(taken)
    peak, why = choose(state)
    assert peak == pytest.approx(landmark(state) * 2.0 ** (octaves - taken))
    assert f"well up to {landmark(state) * 2.0**octaves:.3g}" in why
    other, said = choose(searched(flat, total=600))
    assert "weighted centre" in said and other < peak


def test_where_miniature_runs_have_not_halved_the_loss_their_centre_counts():
    """A plateau that all reach alike, as that of a deep network which knows how often classes come and no more."""
    high = START * HALVED
    for loss, name in ((0.99 * high, "well up to"), (1.01 * high, "weighted centre")):
        state = searched([(-2, loss), (0, loss), (2, math.inf), (1, math.inf), (-3, 1.8)], **SGD)
        assert anchor(state)[1] == name
    found, without = horizon_octaves(state), correction(state.settings, START, 1.01 * high)
    assert found == pytest.approx(without + SHORT_SGD.off)


@pytest.mark.parametrize(
    ("total", "proportional", "share", "trusted"),
    [(600, False, 0.92, False), (600, False, 0.88, True), (600, True, 0.92, True), (1100, False, 0.92, True)],
)
def test_a_short_run_that_has_hardly_learned_goes_by_the_edge(total, proportional, share, trusted):
    loss = share * START
    state = searched([(-2, loss), (-1, loss + 0.01)], total=total, proportional_steps=proportional)
    peak, why = choose(state)
    assert ("too little to tell" not in why) == trusted == answered(state)
    if not trusted:
        assert peak == pytest.approx(edge(state) * 2.0**BELOW_EDGE_SLOWLY)


@pytest.mark.parametrize(
    ("total", "name", "octave", "more"),
    [
        (1000, "well up to", 0, BELOW_UPPER),
        (1100, "weighted centre", -3, -0.3),
        (50_000, "weighted centre", -3, -0.3),
    ],
)
def test_longer_runs_of_sgd_look_around_and_end_in_the_middle(total, name, octave, more):
    state = searched([(-2, 0.7)], total=total, proportional_steps=True)
    assert anchor(state)[1] == name and next_offset(state) == octave
    others = searched([(-2, 0.7)], total=total)
    assert horizon_octaves(state) - horizon_octaves(others) == pytest.approx(more)


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
    # With momentum, runs at a high LR overshoot in the middle and come back.
    assert limits(searched([], **SGD), -2, 20, 2) == () == limits(searched(curves, **SGD), 0, 20, 2)


@pytest.mark.parametrize(("loss", "too_low"), [(1.2, True), (1.05, False)])
def test_an_interval_that_ends_too_low_is_seen_over_two_octaves_too(loss, too_low):
    interval = (0.5, 1.0)
    state = searched([(-2, loss), (0, 1.0)], lr=interval, **SGD)
    assert interval[1] / 2 < landmark(state) <= interval[1] and interval_too_low(state) == too_low


@pytest.mark.parametrize("breaks", [True, False])
@pytest.mark.parametrize("proportional", [True, False])
def test_by_the_ramp_alone_sgd_goes_by_the_edge_of_divergence(breaks, proportional):
    config = Settings.make(strategy="horizon", total_steps=300, proportional_steps=proportional)
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


@pytest.mark.parametrize(("cost", "minis"), [(6.0, 2), (16.0, 0)])
def test_of_one_miniature_run_alone_nobody_can_say_whether_it_did_well(cost, minis):
    config = Settings.make(strategy="horizon", total_steps=450, proportional_steps=True, evaluate_cost=cost)
    state = engine.evolve(None, engine.start(config, validation=True))
    state = replace(state, evaluations=1, weighed=True)
    state = engine.evolve(state, Asked(Horizon().decide(state)))
    losses = tuple(2.0 - 0.05 * i if i < 14 else 9.0 for i in range(20))
    state = engine.evolve(state, Probed(0, 0, 10.0, 20, losses, Forecast(0, 0, 0, 0, "ok")))
    command = Horizon().decide(state)
    assert isinstance(command, Probe) and is_sweep(command.profile) == (not minis)
    assert minis or choose(state)[1].startswith("no miniature run is affordable")


def test_the_highest_lr_that_does_well_lies_on_the_line_between_two_losses():
    assert upper({-2: 0.0, -1: WELL}) == -1.0 and upper({-2: 0.0, -1: 2 * WELL}) == pytest.approx(-1.5)
