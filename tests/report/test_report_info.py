from __future__ import annotations

import pytest
from simulated_events import SMALL, events_of

from autolrs.core import engine, strategies
from autolrs.core.settings import Settings
from autolrs.core.types import Asked, Commit, Continued, Failed, Probed, Resumed, Weighed, peak_lr
from autolrs.report import info
from autolrs.run.session import Session
from autolrs.testing.simulated import SimulatedHost


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"preset": "practical"},
        {"warmup_steps": 50},
        {"lr": "auto", "range_lr": (1e-4, 10.0)},
        {"abort_diverged": True, "lr": (1e-2, 50.0)},
        {"strategy": "horizon"},
    ],
)
@pytest.mark.parametrize("steps", [None, 333])
@pytest.mark.parametrize("keep_best", [False, True])
def test_costs_and_stages_agree_with_the_engines_own_count(settings, steps, keep_best):
    events = events_of(steps=steps, validation=keep_best, keep_best=keep_best, **settings)
    state, run = engine.fold(events), info.gather(events)
    assert run.cost.committed == state.committed_steps == run.schedule.total_steps
    assert run.cost.raw == state.raw_steps
    assert run.cost.evaluations == state.evaluations
    assert run.schedule == state.schedule
    assert run.finished == state.finished
    done = [stage for stage in run.stages if stage.done]
    assert sum((stage.profile for stage in done), ()) == state.segments
    assert [stage.start for stage in done] == [sum(s.steps for s in done[:i]) for i in range(len(done))]


def test_the_winner_is_the_probe_whose_lr_was_committed():
    run = info.gather(events_of())
    for stage in run.stages:
        winner = next(probe for probe in stage.probes if probe.index == stage.winner)
        assert winner.lr == peak_lr(stage.profile)
        assert stage.forecast == winner.forecast


def test_looks_and_the_best_of_them():
    run = info.gather(events_of(validation=True, keep_best=True))
    assert [look.step for look in run.looks] == list(range(35, 701, 35))
    assert run.best == min(run.looks, key=lambda look: look.loss)


def test_settings_that_differ_from_their_defaults():
    run = info.gather(events_of(kappa=5.0))
    assert run.changed["kappa"] == 5.0
    assert "noise" not in run.changed


def test_steps_undone_by_a_restart_are_lost_and_counted_once():
    events = events_of()
    cut = 8
    run = info.gather([*events[: cut + 4], Resumed(cut), *events[cut:]])
    whole = info.gather(events)
    assert run.restarts == 1
    assert run.cost.lost > 0
    assert (run.cost.raw, run.stages) == (whole.cost.raw, whole.stages)


def test_no_events_are_refused():
    with pytest.raises(ValueError, match="Started"):
        info.gather([])


def test_steps_of_a_stretch_that_was_undone_are_counted_as_the_engine_does():
    events = events_of(strategy="horizon")
    at = next(i for i, e in enumerate(events) if isinstance(e, Asked) and isinstance(e.command, Commit))
    failed = [*events[: at + 1], Failed(0, 0.1, 17), events[at], *events[at + 1 :]]
    run, state = info.gather(failed), engine.fold(failed)
    assert run.cost.failed == 17
    assert run.cost.raw == state.raw_steps


def test_the_call_that_weighed_evaluate_is_counted_as_the_engine_does():
    events = events_of(strategy="horizon")
    at = next(i for i, e in enumerate(events) if isinstance(e, Probed)) + 1
    weighed = [*events[:at], Weighed(0.5, 2.0), *events[at:]]
    run, state = info.gather(weighed), engine.fold(weighed)
    assert run.cost.evaluations == state.evaluations == info.gather(events).cost.evaluations + 1


def test_a_run_that_went_on_from_a_checkpoint_of_another_journal():
    events = events_of()
    at = next(i for i, e in enumerate(events) if isinstance(e, Probed) and (e.stage, e.index) == (1, 2))
    state = engine.fold(events[:at])
    continued = [events[0], Continued(state.to_json()), *events[at:]]
    run, whole = info.gather(continued), info.gather(events)
    assert run.schedule == whole.schedule
    assert run.cost.raw == whole.cost.raw and run.cost.committed == whole.cost.committed
    assert [p.index for p in run.stages[0].probes] == [0, 1, 2, 3, 4]
    assert run.stages[0].winner == whole.stages[1].winner


def test_a_run_extended_in_the_middle_of_a_stretch_has_the_profile_it_trained():
    host, settings = SimulatedHost(seed=2), Settings.make(**{**SMALL, "strategy": "horizon"})
    session = Session(host, settings, strategies.get("horizon"), stream=host.stream)
    events = []
    session.listeners.append(events.append)
    session.begin()
    while session.committed_steps < 100:
        session.step(host.step())
    session.extend(1200)
    while not session.done:
        session.step(host.step())
    run = info.gather(events)
    assert sum((stage.profile for stage in run.stages), ()) == run.schedule.segments
    assert run.schedule.total_steps == 1200 == sum(stage.steps for stage in run.stages)
