import json
import random

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from autolrs.core import engine
from autolrs.core.engine import State, decide, evolve, fold, history
from autolrs.core.settings import Settings
from autolrs.core.strategies.paper import Paper
from autolrs.core.types import (
    Aborted,
    Asked,
    Commit,
    Committed,
    Finish,
    Finished,
    Forecast,
    Looked,
    Noted,
    Probe,
    Probed,
    Ranged,
    Resumed,
    Wait,
    Weighed,
    constant,
    decode,
    encode,
    peak_lr,
    profile_steps,
)
from autolrs.testing import SimulatedHost
from helpers import asked, finish_from, hosts, next_command, of_kind, paper_settings, run, small

STARTED = engine.start(small())
PROBE = Probe(0, 0, constant(10, 0.1))
COMMIT = Commit(0, constant(100, 0.1))


def answer(probe, value):
    return Probed(probe.stage, probe.index, peak_lr(probe.profile), 10, (), Forecast(value, 0.0, 0.0, value, "ok"))


# Folding


def test_the_best_look_is_the_first_of_the_lowest_finite_losses():
    state = fold([STARTED])
    assert state.best is None
    for step, loss in enumerate([float("nan"), 2.0, float("-inf"), 1.0, 1.0, 3.0, float("inf")]):
        state = evolve(state, Looked(step, loss))
    assert state.best == Looked(3, 1.0) and state.evaluations == 7
    assert State.from_json(json.loads(json.dumps(state.to_json()))).best == state.best


def test_a_weighed_evaluate_is_counted_at_the_cost_that_was_found():
    settings = Settings(strategy="horizon", total_steps=600)
    state = evolve(None, engine.start(settings, validation=True))
    assert state.settings.evaluate_steps == pytest.approx(10 / 3)
    state = evolve(state, Weighed(2.5, 4.6))
    assert (state.settings.evaluate_steps, state.evaluations, state.weighed) == (2.5, 1, True)
    assert State.from_json(state.to_json()) == state


def test_run_begins_with_started_and_only_once():
    with pytest.raises(ValueError, match="must begin with Started, got Noted"):
        evolve(None, Noted("x"))
    with pytest.raises(ValueError, match="only start once"):
        fold([STARTED, STARTED])
    with pytest.raises(ValueError, match="nothing was started"):
        fold([])


def test_answer_that_nobody_asked_for_is_an_error_that_names_it():
    with pytest.raises(ValueError, match="probe 0 of stage 0 was answered but is not outstanding"):
        fold([STARTED, answer(PROBE, 1.0)])
    with pytest.raises(ValueError, match="not outstanding"):
        fold([STARTED, Asked(PROBE), answer(PROBE, 1.0), answer(PROBE, 1.0)])


def test_commit_that_nobody_asked_for_is_an_error():
    with pytest.raises(ValueError, match="stage 0 was committed but no commit was asked for"):
        fold([STARTED, Committed(0, constant(100, 0.1), 100, ())])


def test_steps_of_probes_aborts_and_commits_are_counted():
    second = Probe(0, 1, constant(10, 0.2))
    state = fold(
        [
            STARTED,
            Asked(PROBE),
            answer(PROBE, 1.0),
            Asked(second),
            Aborted(0, 1, 0.2, 4, (), "why", 2),
            Asked(COMMIT),
            Committed(0, COMMIT.profile, 90, ()),
            Noted("no change"),
        ]
    )
    assert (state.raw_steps, state.committed_steps, state.evaluations, state.events) == (104, 100, 2, 8)
    assert (state.stage, state.probes, state.outstanding, state.committing) == (1, (), (), None)
    assert state.previous_lr == 0.1
    assert state.steps_left == 600


def test_state_is_immutable():
    state = fold([STARTED])
    evolve(state, Asked(PROBE))
    assert state.outstanding == ()
    with pytest.raises(AttributeError):
        state.stage = 3


def test_range_test_sets_the_interval_and_leaves_no_probe_behind():
    probe = Probe(-1, 0, constant(10, 0.1))
    state = fold([engine.start(Settings()), Asked(probe), answer(probe, 1.0), Ranged(1e-3, 1.0)])
    assert state.interval == (1e-3, 1.0)
    assert state.probes == ()
    assert state.raw_steps == 10


def test_resumed_undoes_what_came_after_its_point():
    events = [STARTED, Asked(PROBE), answer(PROBE, 1.0), Noted("lost"), Resumed(2), answer(PROBE, 2.0), Resumed(3)]
    assert history(events) == [STARTED, Asked(PROBE), answer(PROBE, 2.0)]
    assert fold(events).events == 3


@pytest.mark.parametrize("at", [0, -1, 3])
def test_resumed_from_a_point_that_never_was_is_an_error(at):
    with pytest.raises(ValueError, match=f"Resumed points at event {at} of 2"):
        fold([STARTED, Noted("x"), Resumed(at)])


def test_resumed_cannot_be_folded_alone():
    with pytest.raises(ValueError, match="use `history`"):
        evolve(fold([STARTED]), Resumed(1))


# Deciding


def test_finished_run_stays_finished():
    state = fold([STARTED, Finished("enough")])
    assert decide(state, Paper()) == Finish("enough")


def test_commit_asked_for_and_not_done_is_asked_for_again():
    assert decide(fold([STARTED, Asked(COMMIT)]), Paper()) == COMMIT


def test_run_without_total_steps_never_finishes_by_itself():
    state = fold([engine.start(small(total_steps=None))])
    for _ in range(60):
        command = decide(state, Paper())
        assert isinstance(command, (Probe, Commit))
        state = evolve(state, Asked(command))
        if isinstance(command, Probe):
            state = evolve(state, answer(command, 1.0))
        else:
            state = evolve(state, Committed(command.stage, command.profile, 1, ()))
    assert state.steps_left is None


@given(paper_settings(), st.data())
def test_answers_may_arrive_in_any_order(settings, data):
    """Parallel probes at the level of the engine: never more than allowed, each place once, LRs all different."""
    parallel = data.draw(st.integers(1, 4))
    assume(settings.kappa > 0 or settings.search != "lcb" or parallel == 1)
    rng = random.Random(data.draw(st.integers(0, 99)))
    state = fold([engine.start(settings.with_(parallel=parallel))])
    while not isinstance(command := decide(state, Paper()), Finish):
        if isinstance(command, Commit):
            assert not state.outstanding
            lrs = {probe.lr for probe in state.probes}
            if lrs:
                assert command.profile[0].lr_start in lrs
            state = evolve(state, Asked(command))
            state = evolve(state, Committed(command.stage, command.profile, profile_steps(command.profile), ()))
            continue
        if isinstance(command, Wait):
            assert len(state.outstanding) == parallel or len(state.outstanding) + len(state.probes) == settings.n_probes
        else:
            assert peak_lr(command.profile) not in [peak_lr(probe.profile) for probe in state.outstanding]
            assert command.index == len(state.outstanding) + len(state.probes)
            state = evolve(state, Asked(command))
            assert len(state.outstanding) <= parallel
        if state.outstanding and (isinstance(command, Wait) or rng.random() < 0.4):
            probe = rng.choice(state.outstanding)
            state = evolve(state, answer(probe, abs(peak_lr(probe.profile) - 0.1)))
    assert state.committed_steps == settings.total_steps


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (3, 2, 1, 0), (2, 0, 3, 1)])
def test_order_of_arrival_does_not_change_the_winner_of_a_grid(order):
    state = fold([engine.start(small(search="grid", parallel=4))])
    for _ in range(4):
        state = evolve(state, Asked(decide(state, Paper())))
    assert decide(state, Paper()) == Wait()
    values = [4.0, 1.0, 2.0, 3.0]
    for index in order:
        state = evolve(state, answer(next(p for p in state.outstanding if p.index == index), values[index]))
    assert decide(state, Paper()).profile[0].lr_start == pytest.approx(1e-2)


# Kill and resume


RESUMABLE = st.fixed_dictionaries(
    {
        "replay": st.just(True),
        "keep_winner": st.booleans(),
        "bounded_forecast": st.booleans(),
        "max_lr_move": st.sampled_from([None, 3.0]),
        "warmup_steps": st.sampled_from([0, 25]),
        "final_anneal": st.sampled_from([0.0, 0.2]),
    }
)


@st.composite
def replayed_settings(draw):
    values = draw(RESUMABLE)
    settings = draw(paper_settings())
    room = 2 * settings.total_steps + 50  # warm-up and anneal must leave a whole first stage
    return settings.with_(total_steps=room, n_probes=min(settings.n_probes, 3), **values)


@given(replayed_settings(), hosts(), st.booleans(), st.data())
def test_every_prefix_of_a_run_leads_to_the_same_schedule(settings, make, validation, data):
    session, events = run(settings, make(), validation=validation)
    at = data.draw(st.integers(1, len(events)))
    state = fold(decode(json.loads(json.dumps(encode(events[:at])))))
    resumed, host = finish_from(state, make)
    assert resumed.schedule == session.state.schedule
    assert (host.mean_square == session.host.mean_square).all()


@pytest.mark.parametrize("values", [{}, {"keep_winner": True}, {"warmup_steps": 20, "final_anneal": 0.2}])
def test_no_event_is_a_bad_moment_to_be_killed(values):
    settings = small(replay=True, **values)
    session, events = run(settings, SimulatedHost(), validation=True)
    for at in range(1, len(events) + 1):
        resumed, _ = finish_from(fold(events[:at]), SimulatedHost)
        assert resumed.schedule == session.state.schedule, f"killed after event {at}"


@given(paper_settings(), hosts(), st.booleans())
def test_every_prefix_asks_next_what_the_journal_asked_next(settings, make, validation):
    _, events = run(settings, make(), validation=validation)
    for at in range(1, len(events)):
        state = fold(events[:at])
        following = next(event for event in events[at:] if not isinstance(event, Noted))
        command = next_command(state)
        if isinstance(following, Asked):
            assert command == following.command
        elif isinstance(following, Finished):
            assert command == Finish(following.reason)
        else:  # the answer to what was asked last, which a resumed run asks again
            assert command == of_kind(events[:at], Asked)[-1].command


@given(paper_settings(), hosts(), st.booleans(), st.data())
def test_state_survives_json(settings, make, validation, data):
    _, events = run(settings, make(), validation=validation)
    state = fold(events[: data.draw(st.integers(1, len(events)))])
    again = State.from_json(json.loads(json.dumps(state.to_json(), allow_nan=False)))
    assert repr(again) == repr(state)  # NaN equals itself in print only


def test_each_asked_probe_is_answered_once_and_each_stage_commits_once():
    _, events = run(small(), SimulatedHost())
    assert len(asked(events, Probe)) == len(of_kind(events, Probed)) == 12
    assert [commit.stage for commit in asked(events, Commit)] == [0, 1, 2]
