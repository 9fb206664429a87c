"""Re-planning part-way: within the cost ceiling, never lower, no jump, and the same after a kill."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from fragile import Fragile
from hypothesis import given, settings
from hypothesis import strategies as st

from autolrs.core import engine
from autolrs.core.settings import Settings
from autolrs.core.strategies.horizon import Horizon
from autolrs.core.strategies.horizon_plan import plan
from autolrs.core.strategies.horizon_replan import conclude
from autolrs.core.types import (
    Aborted,
    Asked,
    Commit,
    Committed,
    Failed,
    Forecast,
    Noted,
    Probe,
    Probed,
    Segment,
    profile_steps,
)
from autolrs.run.session import Session, drive
from autolrs.testing.simulated import SimulatedHost


class Waning(SimulatedHost):
    """After 900 batches an LR does a 64th of what it did: then it should be raised."""

    def set_lr(self, lr):
        super().set_lr(lr if self.position < 900 else lr / 64)


RISES = {"replan_at": (0.25,), "make": Waning}


def begun(total, *, make=SimulatedHost, validation=False, **values):
    host = make()
    config = Settings.make(total_steps=total, strategy="horizon", **values)
    session = Session(host, config, Horizon(), stream=host.stream, validation=validation)
    events = []
    session.listeners.append(events.append)
    return host, session, events


def run(total, **values):
    host, session, events = begun(total, **values)
    return host, drive(session, host), events


def anneals(events):
    """Probes of re-planning: those after the first commit."""
    probes = [e.command for e in events if isinstance(e, Asked) and isinstance(e.command, Probe)]
    return [probe for probe in probes if probe.stage]


def at_border(*values, **changes):
    """A state at a quarter of 4000 steps in which miniature anneals ended at `values`; None: it was stopped."""
    given = {"replan_at": (0.25,), "horizon_shift": 1.1, **changes}
    config = Settings.make(total_steps=4000, strategy="horizon", **given)
    state = engine.evolve(None, engine.start(config))
    segments = (Segment(200, 5e-6, 1e-3), Segment(800, 1e-3, 8e-4))
    state = replace(state, raw_steps=1300, committed_steps=1000, stage=1, segments=segments)
    for index, value in enumerate(values):
        command = Horizon().decide(state)
        assert isinstance(command, Probe) and command.index == index
        state = engine.evolve(state, Asked(command))
        lr, promise = 2.0**index, Forecast(value or 0.0, 0, 0, 0, "ok")
        answer = Probed(1, index, lr, 80, (), promise) if value is not None else Aborted(1, index, lr, 10, (), "")
        state = engine.evolve(state, answer)
    return state


@given(
    total=st.integers(10, 6000),
    shares=st.lists(st.floats(0.001, 0.999), min_size=1, max_size=3, unique=True).map(lambda s: tuple(sorted(s))),
    spare=st.floats(0.0, 0.3),
    looks=st.sampled_from(["none", "of probes", "for the best, too"]),
    shift=st.sampled_from([-2.0, 1.1]),
)
@settings(deadline=None, max_examples=30)
def test_all_steps_stay_under_the_cost_ceiling_and_committed_steps_are_exact(total, shares, spare, looks, shift):
    max_cost = 1.01 + 0.02 * (2 + 3 * len(shares)) + spare
    validation, keep_best = looks != "none", looks == "for the best, too"
    values = {"max_cost": max_cost, "replan_at": shares, "horizon_shift": shift, "lr": (1e-4, 1.0)}
    _, state, events = run(total, validation=validation, keep_best=keep_best, **values)
    assert state.committed_steps == total == state.schedule.total_steps
    assert state.raw_steps + state.evaluations * state.settings.evaluate_steps <= max_cost * total + 1e-6
    planned = plan(state.settings, validation=validation).replans
    notes = [e.message for e in events if isinstance(e, Noted)]
    assert sum("re-planned at" in note for note in notes) == len(planned)
    assert planned or any("re-planning is left out" in note for note in notes)
    assert max(state.schedule.lrs()) <= 1.0 + 1e-9


@pytest.mark.parametrize("at", [(0.25,), (0.25, 0.5), (0.02, 0.26, 0.27)])
@pytest.mark.parametrize("decay_to", [0.0, 0.1])
def test_lr_rises_over_a_short_ramp_and_falls_in_a_line_to_the_end_without_a_jump(at, decay_to):
    values = {**RISES, "replan_at": at, "max_cost": 1.5, "decay_to": decay_to}
    _, state, events = run(4000, **values)
    raised = [e for e in events if isinstance(e, Asked) and "the LR rises to" in getattr(e.command, "note", "")]
    assert raised
    assert all(e.command.profile[0].lr_end > e.command.profile[0].lr_start for e in raised)
    segments = state.segments
    for before, after in pairwise(segments):
        assert after.lr_start == pytest.approx(before.lr_end)
    lrs, top = state.schedule.lrs(), int(np.argmax(state.schedule.lrs()))
    assert np.allclose(np.diff(lrs[top:]), np.diff(lrs[top:]).mean())
    assert segments[-1].lr_end == pytest.approx(decay_to * lrs[top])
    starts = np.cumsum([0] + [profile_steps(e.profile) for e in events if isinstance(e, Committed)])
    assert set(plan(state.settings, validation=False).replans) <= set(starts)


def test_miniature_anneals_start_from_the_present_lr_and_state_and_end_at_0():
    _, state, events = run(4000, **RISES)
    probes = anneals(events)
    asked = next(i for i, e in enumerate(events) if isinstance(e, Asked) and e.command == probes[0])
    lr = [e for e in events[:asked] if isinstance(e, Committed)][-1].profile[-1].lr_end
    assert [probe.profile[1].lr_start for probe in probes] == pytest.approx([lr * 2.0**i for i in range(len(probes))])
    for probe in probes:
        assert profile_steps(probe.profile) == 80
        assert (probe.profile[0].lr_start, probe.profile[-1].lr_end) == (pytest.approx(lr), 0.0)
    answers = [e for e in events if isinstance(e, (Probed, Aborted)) and e.stage]
    assert len({e.losses[0] for e in answers}) == 1  # the same batch from the same weights
    assert state.schedule.lrs()[999] == pytest.approx(lr, rel=1e-2)


def test_without_it_nothing_changes():
    _, plain, _ = run(4000)
    _, state, events = run(4000, replan_at=(0.25,), max_cost=1.15 + 0.06)
    kept = [e for e in events if isinstance(e, Noted) and "the LR stays" in e.message]
    assert len(kept) == 1
    assert np.allclose(state.schedule.lrs(), plain.schedule.lrs())


@pytest.mark.parametrize(
    ("values", "octaves"),
    [
        ((1.0, 2.0), 0.0),  # the higher LR was worse: the third is not run
        ((1.0, 0.9, 1.0), 0.0),  # a short horizon likes twice the LR too much anyway
        ((1.0, 0.9, 0.95), 0.08),
        ((1.0, 0.9, 0.8), 0.83),
        ((1.0, 0.9, None), 0.0),
        ((None, None), 0.0),
        ((1.0, 1.0, 1.0), 0.0),
    ],
)
@pytest.mark.parametrize(("scale", "offset"), [(1.0, 0.0), (1e-6, 0.0), (1e6, -50.0)])
def test_lr_rises_only_where_four_times_it_still_won(values, octaves, scale, offset):
    state = at_border(*(None if value is None else offset + scale * value for value in values))
    found, why = conclude(state, plan(state.settings, validation=False))
    assert found == pytest.approx(octaves, abs=0.02)
    command = Horizon().decide(state)
    assert isinstance(command, Commit) and command.note == why
    assert why.startswith("re-planned at 25%: ") and ("rises" in why) == (octaves > 0)
    assert ("x 4 was stopped" in why) == (values[2:] == (None,))


@given(values=st.lists(st.none() | st.floats(-1e6, 1e6), min_size=3, max_size=3), shift=st.floats(-3, 3))
@settings(deadline=None)
def test_lr_never_falls_and_never_rises_beyond_what_was_tried(values, shift):
    first = -2e6 if values[0] is None else values[0]  # so that the third is asked for
    state = at_border(first, first, values[2], horizon_shift=shift)
    octaves, _ = conclude(state, plan(state.settings, validation=False))
    assert 0.0 <= octaves <= 2.0


def test_correction_is_that_of_the_horizon_that_is_left():
    found = [conclude(at_border(1.0, 0.9, 0.8, horizon_shift=s), plan(at_border().settings, validation=False))[0]
             for s in (0.0, 1.0)]  # fmt: skip
    assert found[0] - found[1] == pytest.approx(math.log(3000 / 80) / math.log(4000 / 80))


def test_lrs_above_the_interval_are_not_tried():
    _, state, events = run(4000, **RISES, lr=(1e-4, 0.05))
    assert anneals(events)
    assert all(max(s.lr_start, s.lr_end) <= 0.05 * (1 + 1e-9) for s in state.segments)
    assert all(probe.profile[1].lr_start <= 0.05 * (1 + 1e-9) for probe in anneals(events))


@pytest.mark.parametrize("values", [RISES, {"replan_at": (0.25, 0.5), "max_cost": 1.2}])
def test_every_prefix_of_the_journal_leads_to_the_same_next_command(values):
    _, _, events = run(2000, **values)
    assert anneals(events)
    state = None
    for event, following in zip(events, [*events[1:], None], strict=True):
        state = engine.evolve(state, event)
        if isinstance(following, Asked):
            assert engine.decide(state, Horizon()) == following.command


class FragileAndWaning(Fragile, Waning):
    limit = math.inf


def test_stretch_that_dies_after_the_lr_was_raised_is_tried_again_below_where_it_was():
    host, session, events = begun(4000, make=FragileAndWaning, replan_at=(0.25,))
    session.begin()
    while session.committed_steps < 1000 or session.exploring:
        session.step(host.step())
    before = session.state.segments[-1].lr_end
    host.limit = 1.2 * before / 64
    state = drive(session, host)
    assert [e.lr > before for e in events if isinstance(e, Failed)] == [True]
    assert state.committed_steps == 4000 and not host.dead
    assert state.schedule.lrs()[1000] == pytest.approx(before / 4)
    assert engine.fold(events) == state


def test_money_that_failed_stretches_have_spent_is_not_spent_again():
    state = at_border()
    assert isinstance(Horizon().decide(state), Probe)
    broke = replace(state, raw_steps=state.raw_steps + 250)
    command = Horizon().decide(broke)
    assert isinstance(command, Commit)
    assert "no miniature anneal is affordable" in command.note


def test_extended_run_is_planned_anew_at_the_shares_of_its_new_budget():
    host, session, events = begun(4000, replan_at=(0.5,))
    session.begin()
    while session.committed_steps < 1500:
        session.step(host.step())
    session.extend(6000)
    state = drive(session, host)
    assert state.committed_steps == 6000
    (stage,) = {probe.stage for probe in anneals(events)}
    assert sum(profile_steps(e.profile) for e in events if isinstance(e, Committed) and e.stage < stage) == 3000


def test_run_extended_after_its_end_warms_up_and_is_not_planned_anew_at_an_lr_of_0():
    host, session, events = begun(3000, replan_at=(0.5,))
    drive(session, host)
    count = len(anneals(events))
    session.extend(6000)
    assert drive(session, host).committed_steps == 6000
    assert len(anneals(events)) == count


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"replan_at": (0.5, 0.25)}, r"`replan_at` must be increasing numbers between 0 and 1.*got \(0.5, 0.25\)"),
        ({"replan_at": (0.0,)}, "between 0 and 1"),
        ({"replan_at": (1.0,)}, "between 0 and 1"),
        ({"replan_at": (0.5, 0.5)}, "increasing"),
        ({"replan_at": (math.nan,)}, "increasing"),
        ({"replan_at": 0.5}, "got 0.5"),
        ({"replan_at": (0.25, 0.5)}, r"`max_cost` of at least 1.17, for a ramp of 1 %.*got 1.15"),
        ({"replan_at": (0.25,), "max_cost": 1.05}, r"at least 1.11"),
        ({"replan_at": (0.25,), "decay_to": 1}, "needs a decay"),
    ],
)
def test_what_cannot_be_is_refused(values, message):
    with pytest.raises(ValueError, match=message):
        Settings.make(total_steps=4000, strategy="horizon", **values)


def test_idle_under_the_paper_strategy_and_survives_a_round_trip():
    config = Settings.make(lr=(1e-3, 1.0), total_steps=4000, replan_at=[0.25])
    assert config.idle() == ["replan_at"]
    assert config.replan_at == (0.25,)
    assert Settings.from_dict(config.to_dict()) == config
