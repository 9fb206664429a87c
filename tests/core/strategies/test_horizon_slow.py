"""The slow ramp of SGD: where training breaks, and what that makes of the peak."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autolrs.core import engine
from autolrs.core.interval import is_sweep
from autolrs.core.settings import Settings
from autolrs.core.strategies.horizon import Horizon
from autolrs.core.strategies.horizon_choice import choose, warmup_share
from autolrs.core.strategies.horizon_plan import SLOW_STEPS, compares, plan
from autolrs.core.strategies.horizon_ramp import first_edge, further_ramps
from autolrs.core.strategies.horizon_slow import (
    AT_LEAST_BELOW,
    BELOW,
    BELOW_TRAINED,
    BELOW_UNSEEN,
    BEYOND,
    OCTAVES,
    WARMUP,
    drawn,
    slow_edge,
    slow_lrs,
    slow_ramp,
)
from autolrs.core.types import Aborted, Asked, Commit, Forecast, Probe, Probed, peak_lr
from autolrs.run.session import Session, drive
from autolrs.testing.simulated import SimulatedHost

BREAKS = 0.3  # the LR at which training breaks, where it is warmed up


def answered(state, probe, losses):
    """The state after a probe that was asked for came to these losses."""
    state = engine.evolve(state, Asked(probe))
    top = max(segment.lr_start for segment in probe.profile)
    value, steps = float(np.mean(losses[-6:])), len(losses)
    sweep = is_sweep(probe.profile)
    return engine.evolve(
        state, Probed(0, probe.index, top, steps, tuple(losses), Forecast(value, 0, 0, 0, "ok"), sweep=sweep)
    )


def ramped(total=600, validation=False, breaks=1.2, **values):
    """A state whose first ramp is known: it breaks two octaves too late, since it goes through an octave a step."""
    settings = Settings.make(strategy="horizon", total_steps=total, **{"proportional_steps": True, **values})
    state = engine.evolve(None, engine.start(settings, validation=validation))
    probe = Horizon().decide(state)
    lrs = [segment.lr_start for segment in probe.profile]
    return answered(state, probe, [2.3 + 0.01 * (i % 3) if lr < breaks else 9.0 for i, lr in enumerate(lrs)])


def course(lrs, breaks=BREAKS, noise=0.0, seed=0):
    """Losses that fall from 2.3 to 1 until the LR at which they break out, as those of dead networks do."""
    batches = noise * np.random.default_rng(seed).standard_normal(len(lrs))
    progress = np.clip(1 + np.log2(np.asarray(lrs) / breaks) / 6, 0, 1)
    return [*(np.where(np.asarray(lrs) < breaks, 2.3 - 1.3 * progress, 2.5) + batches)]


def slowed(state, losses=course):
    probe = Horizon().decide(state)
    return answered(state, probe, losses([segment.lr_start for segment in probe.profile]))


def test_a_short_run_of_sgd_has_a_slow_ramp_and_no_miniature_runs():
    state = ramped()
    probe = Horizon().decide(state)
    assert isinstance(probe, Probe) and is_sweep(probe.profile) and probe.index == 1 and probe.check_every == 1
    lrs = [segment.lr_start for segment in probe.profile]
    steps = round(0.15 * 600) - 20
    assert len(lrs) == min(steps, SLOW_STEPS[2])
    assert lrs[-1] == pytest.approx(first_edge(state) * 2**BEYOND)
    assert OCTAVES[0] <= math.log2(first_edge(state) / lrs[0]) <= OCTAVES[1] + 1e-9
    state = slowed(state)
    run = Horizon().decide(state)
    assert isinstance(run, Commit) and run.profile[0].steps + sum(s.steps for s in run.profile[1:]) == 60
    assert warmup_share(state) == WARMUP and f"warm-up over {WARMUP:.0%}" in run.note
    assert run.aim == pytest.approx(slow_edge(state) * 2**-BELOW)


@pytest.mark.parametrize("breaks", [0.02, 0.1, 0.3, 0.6])
@pytest.mark.parametrize("noise", [0.0, 0.03, 0.1])
def test_the_peak_lies_below_where_training_breaks(breaks, noise):
    state = slowed(ramped(), lambda lrs: course(lrs, breaks, noise, seed=3))
    assert abs(math.log2(slow_edge(state) / breaks)) < 0.5
    peak, why = choose(state)
    assert peak == pytest.approx(slow_edge(state) * 2**-BELOW)
    assert f"training broke at {slow_edge(state):.3g}; {BELOW} octaves below that: peak {peak:.4g}" in why


@given(scale=st.floats(1e-3, 1e3), offset=st.floats(-100, 100), seed=st.integers(0, 50))
def test_losses_of_any_scale_and_sign_tell_the_same(scale, offset, seed):
    def of(scale, offset):
        return slow_edge(slowed(ramped(), lambda lrs: [scale * x + offset for x in course(lrs, noise=0.05, seed=seed)]))

    assert of(scale, offset) == pytest.approx(of(1.0, 0.0), rel=1e-6)


def test_a_network_that_was_trained_before_gets_a_lower_peak():
    state = slowed(ramped(trained_before=True))
    peak, why = choose(state)
    new, said = choose(slowed(ramped()))
    assert peak == pytest.approx(slow_edge(state) * 2**-BELOW_TRAINED) and peak < new
    assert "since the network was trained before" in why and "before" not in said


def test_where_nothing_was_learned_before_the_break_the_peak_lies_lower():
    """As of a deep network, whose loss is that of guessing before it dies and after it, until numbers overflow."""

    def flat(lrs):
        return [2.3 + 0.02 * (i % 3) if lr < BREAKS else 9.0 for i, lr in enumerate(lrs)]

    state = slowed(ramped(), flat)
    peak, why = choose(state)
    assert peak == pytest.approx(slow_edge(state) * 2**-BELOW_UNSEEN) and "nothing was learned before it" in why


def test_a_single_hard_batch_is_no_break():
    def with_a_spike(lrs):
        losses = course(lrs, noise=0.02)
        losses[len(losses) // 3] += 2.0
        return losses

    assert slow_edge(slowed(ramped(), with_a_spike)) == slow_edge(slowed(ramped(), lambda lrs: course(lrs, noise=0.02)))


def test_one_that_comes_back_has_broken_where_it_does_so_for_good():
    def twice(lrs):
        return [2.5 if 0.02 < lr < 0.05 else loss for lr, loss in zip(lrs, course(lrs), strict=True)]

    assert slow_edge(slowed(ramped(), twice)) == pytest.approx(slow_edge(slowed(ramped())), rel=0.3)


def test_one_that_was_stopped_broke_there():
    state = ramped()
    probe = Horizon().decide(state)
    lrs = [segment.lr_start for segment in probe.profile]
    until = [*course(lrs, 1e9)[: len(lrs) // 2], math.inf]
    state = engine.evolve(state, Asked(probe))
    state = engine.evolve(state, Aborted(0, 1, lrs[-1], len(until), tuple(until), "not finite", sweep=True))
    assert slow_edge(state) == pytest.approx(lrs[len(until) - 2]) and "training broke" in choose(state)[1]


@pytest.mark.parametrize("losses", [[2.3, 2.4, math.inf], [math.nan], [math.inf] * 30, [2.3] * 5 + [math.nan] * 20, []])
def test_one_that_breaks_at_once_is_no_licence_for_a_high_peak(losses):
    state = ramped()
    probe = Horizon().decide(state)
    lrs = [segment.lr_start for segment in probe.profile]
    state = engine.evolve(state, Asked(probe))
    state = engine.evolve(state, Aborted(0, 1, lrs[-1], len(losses), tuple(losses), "not finite", sweep=True))
    assert slow_edge(state) <= lrs[4] and choose(state)[0] <= lrs[4] * 2**-BELOW


def test_one_that_never_breaks_tells_its_highest_lr():
    state = slowed(ramped(), lambda lrs: course(lrs, 1e9))
    assert slow_edge(state) == slow_lrs(state)[-1] and "training had not broken at" in choose(state)[1]


def test_where_not_even_the_first_ramp_breaks_it_goes_to_the_end_of_the_interval():
    state = ramped(breaks=math.inf)
    assert slow_lrs(state)[-1] == pytest.approx(10.0)
    assert choose(slowed(state, lambda lrs: course(lrs, 20.0)))[0] == pytest.approx(10 * 2**-BELOW)


@pytest.mark.parametrize("interval", [(0.05, 0.2), (1e-5, 1e-3), (5.0, 50.0)])
def test_an_interval_of_the_users_own_is_kept(interval):
    state = ramped(lr=interval)
    lrs = slow_lrs(state)
    assert interval[0] * (1 - 1e-9) <= lrs[0] < lrs[-1] <= interval[1] * (1 + 1e-9)
    assert interval[0] <= choose(slowed(state))[0] <= interval[1]


@pytest.mark.parametrize(
    ("total", "values", "steps"),
    [
        (200, {}, 0),  # 30 steps in all: the first ramp alone
        (250, {}, 17),
        (1000, {}, SLOW_STEPS[2]),
        (1100, {}, 40),  # beside miniature runs
        (10_000, {}, SLOW_STEPS[2]),
        (10_000, {"normalised": True}, 0),
        (600, {"normalised": True}, SLOW_STEPS[2]),
        (600, {"proportional_steps": False}, 0),
        (10_000, {"proportional_steps": False}, 0),
        (2000, {"max_cost": 1.04}, SLOW_STEPS[2]),  # miniature runs do not fit beside it
        (2000, {"max_cost": 1.04, "normalised": True}, SLOW_STEPS[2]),
    ],
)
def test_who_has_one_and_of_how_many_steps(total, values, steps):
    settings = Settings.make(strategy="horizon", total_steps=total, **{"proportional_steps": True, **values})
    found = plan(settings, validation=False)
    assert found.slow_steps == steps
    assert (found.minis > 0) == ((total > 1000 and "max_cost" not in values) or "proportional_steps" in values)


@pytest.mark.parametrize(("cost", "looks", "steps"), [(0.5, 5, 58), (5.0, 5, 31), (8.0, 0, 53)])
def test_looks_at_the_validation_loss_are_kept_where_enough_steps_are_left_beside_them(cost, looks, steps):
    values = {"proportional_steps": True, "evaluate_cost": cost, "keep_best": "auto", "averaging": False}
    found = plan(Settings.make(strategy="horizon", total_steps=540, **values), validation=True)
    assert (found.looks, found.slow_steps) == (looks, steps)


@pytest.mark.parametrize(("total", "cost", "kept"), [(300, 1.0, False), (300, 3.0, False), (600, 4.0, True)])
def test_the_comparison_at_the_end_is_left_out_where_the_slow_ramp_needs_its_money(total, cost, kept):
    values = {"proportional_steps": True, "averaging": True, "evaluate_cost": cost}
    assert compares(Settings.make(strategy="horizon", total_steps=total, **values)) == kept


def test_a_usual_lr_of_the_users_own_is_asked_of_sgd_too():
    plain, drawn = (choose(slowed(ramped(usual_lr=usual))) for usual in (None, 0.2))
    assert plain[0] < drawn[0] < 0.2 and "half-way to 0.2" in drawn[1] and "half-way" not in plain[1]


# Beside miniature runs


def longer(breaks, runs=((-2, 0.5), (-3, 0.7), (-1, 0.8)), **values):
    """A longer run's state, whose slow ramp broke there, with these miniature runs beside it."""
    state = ramped(total=3000, **values)
    probe = Horizon().decide(state)
    state = answered(state, probe, course([segment.lr_start for segment in probe.profile], breaks))
    told = dict(runs)
    while isinstance(probe := Horizon().decide(state), Probe) and told:
        state = answered(state, probe, [2.3] * 40 + [told.pop(min(told, key=lambda octave: abs(octave)), 1.0)] * 20)
    return state


def test_a_longer_run_has_it_before_its_miniature_runs():
    state = ramped(total=3000)
    first = Horizon().decide(state)
    assert is_sweep(first.profile) and first.index == 1
    state = slowed(state)
    assert slow_ramp(state) is state.probes[1] and not further_ramps(state)
    second = Horizon().decide(state)
    assert not is_sweep(second.profile) and second.index == 2


@pytest.mark.parametrize(("breaks", "case"), [(0.02, "no higher than"), (100.0, "% of the way up to")])
def test_the_peak_of_miniature_runs_is_kept_below_the_break_or_drawn_towards_it(breaks, case):
    state = longer(breaks)
    peak, why = choose(state)
    edge = slow_edge(state)
    assert case in why and "miniature runs" in why
    if breaks < 1:
        assert peak == pytest.approx(edge * 2**-AT_LEAST_BELOW) and f"broke at {edge:.3g}" in why
    else:
        slow, share = edge * 2**-BELOW, drawn(math.log(2.31 / 0.5))
        before = (peak / slow**share) ** (1 / (1 - share))  # what it was drawn from
        assert before < peak < slow and f"had not broken at {edge:.3g}" in why and f"{share:.0%} of the way" in why


def test_after_a_deep_fall_it_tells_how_high_the_peak_may_lie():
    state = longer(2.0, runs=((-2, 0.05), (-3, 0.06)))
    peak, why = choose(state)
    assert peak == pytest.approx(slow_edge(state) * 2**-BELOW) and f"so 100% of the way up to {peak:.3g}" in why
    assert choose(longer(0.02, runs=((-2, 0.05), (-3, 0.06))))[0] < peak  # and still no closer than that to the break


def test_after_a_deep_fall_a_usual_lr_of_the_users_own_is_tried_and_taken_beside_it_too():
    runs = ((-2, 0.05), (-3, 0.06))
    usual = longer(2.0, runs).probes[2].lr / 2**3  # two octaves below what was tried
    state = longer(2.0, runs, usual_lr=usual)
    probe = Horizon().decide(state)
    assert peak_lr(probe.profile) == pytest.approx(usual)
    peak, why = choose(answered(state, probe, [2.3] * 40 + [0.055] * 20))
    assert peak == pytest.approx(usual) and "slow ramp" in why and "which is usual, did well" in why


@pytest.mark.parametrize("breaks", [0.02, 100.0])
def test_beside_them_an_interval_of_the_users_own_is_kept_too(breaks):
    low, high = 0.05, 0.3
    peak, why = choose(longer(breaks, lr=(low, high)))
    assert low <= peak <= high and "slow ramp" in why


def test_where_miniature_runs_learn_nothing_it_alone_tells_the_peak():
    state = longer(BREAKS, runs=[(-2, 2.29), (-3, 2.3)])
    peak, why = choose(state)
    assert peak == pytest.approx(slow_edge(state) * 2**-BELOW) and why.startswith("a slow ramp of")
    assert warmup_share(state) == WARMUP


def test_parallel_searches_choose_what_one_by_one_would():
    def searched(parallel, backwards):
        settings = Settings.make(
            strategy="horizon", total_steps=3000, proportional_steps=True, parallel=parallel, averaging=False
        )
        state = engine.evolve(None, engine.start(settings))
        waiting = []
        while True:
            command = Horizon().decide(state)
            if isinstance(command, Commit):
                return choose(state), sorted((p.index, p.lr) for p in state.probes)
            if isinstance(command, Probe):
                state = engine.evolve(state, Asked(command))
                waiting.append(command)
                if len(waiting) < parallel:
                    continue
            probe = waiting.pop(-1 if backwards else 0)
            host = SimulatedHost(seed=2)
            losses = []
            for segment in probe.profile:
                for i in range(segment.steps):
                    host.set_lr(segment.lr_at(i))
                    losses.append(host.step())
            sweep, top = is_sweep(probe.profile), max(max(s.lr_start, s.lr_end) for s in probe.profile)
            value = Horizon().judge(state, probe, losses)
            state = engine.evolve(state, Probed(0, probe.index, top, len(losses), tuple(losses), value, 0, (), sweep))

    expected = searched(1, False)
    assert searched(3, False) == expected and searched(3, True) == expected


@pytest.mark.parametrize("total", [200, 250, 300, 450, 1000, 1001, 3000, 100_000])
@pytest.mark.parametrize("cost", [None, 0.3, 8.0, 40.0])
def test_it_stays_under_the_ceiling(total, cost):
    host = SimulatedHost(seed=1)
    values = {} if cost is None else {"evaluate_cost": cost, "keep_best": "auto"}
    settings = Settings.make(strategy="horizon", total_steps=total, proportional_steps=True, **values)
    state = drive(Session(host, settings, Horizon(), stream=host.stream, validation=cost is not None), host)
    assert state.committed_steps == total
    assert state.raw_steps + state.evaluations * settings.evaluate_steps <= 1.15 * total + 1e-6
