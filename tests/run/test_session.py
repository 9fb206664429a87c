import copy
import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autolrs.core import engine
from autolrs.core.divergence import diverged
from autolrs.core.engine import fold
from autolrs.core.settings import Settings
from autolrs.core.types import (
    Aborted,
    Asked,
    Commit,
    Committed,
    Finished,
    Forecast,
    Noted,
    Probe,
    Probed,
    Ranged,
    Resumed,
    Segment,
    Started,
    constant,
    locate,
    profile_steps,
)
from autolrs.run import journal
from autolrs.run.journal import Journal
from autolrs.run.session import Session, drive
from autolrs.testing import SimulatedHost
from helpers import RecordingHost, asked, hosts, new_session, of_kind, paper_settings, run, run_altered, small


def profile_lrs(profile):
    return [segment.lr_at(i) for segment in profile for i in range(segment.steps)]


# Counting and LRs


@given(
    paper_settings(),
    st.sampled_from([{}, {"warmup_steps": 20}, {"final_anneal": 0.1}, {"abort_diverged": True}]),
    hosts(RecordingHost),
    st.booleans(),
)
def test_every_step_runs_at_the_lr_of_its_command(settings, values, make, validation):
    settings = settings.with_(total_steps=settings.total_steps + 100, **values)
    session, events = run(settings, make(), validation=validation)
    expected = []
    for event in of_kind(events, Probed, Aborted, Committed):
        if isinstance(event, Committed):
            expected += profile_lrs(event.profile)
        else:
            (probe,) = [p for p in asked(events, Probe) if (p.stage, p.index) == (event.stage, event.index)]
            expected += profile_lrs(probe.profile)[: event.steps]
    assert session.host.lrs == expected
    assert session.raw_steps == session.state.raw_steps == session.host.steps
    assert session.committed_steps == session.state.schedule.total_steps == settings.total_steps


def test_what_people_ask_is_right_at_every_step():
    host = RecordingHost()
    session, events = new_session(small(warmup_steps=10, final_anneal=0.1), host)
    session.begin()
    while not session.done:
        lr, exploring, raw, committed = session.lr, session.exploring, session.raw_steps, session.committed_steps
        assert raw == host.steps
        assert lr == host.lr
        session.step(host.step())
        assert host.lrs[-1] == lr
        if not session.done and not session.exploring and not exploring:
            assert session.committed_steps == committed + 1
    assert session.committed_steps == 700
    assert session.command is None
    assert not session.exploring
    assert session.lr == 0.0
    assert events[-1] == Finished("total_steps reached")


def test_events_come_in_order():
    _, events = run(small(n_probes=2), SimulatedHost())
    stage = ["Asked", "Probed", "Asked", "Probed", "Asked", "Committed"]
    assert [type(event).__name__ for event in events] == ["Started", *stage * 3, "Finished"]


def test_begin_is_done_once():
    host = SimulatedHost()
    session, events = new_session(small(), host)
    session.begin()
    session.begin()
    assert len(of_kind(events, Started)) == len(of_kind(events, Asked)) == 1


def test_drive_stops_after_the_steps_asked_for():
    host = SimulatedHost()
    session, _ = new_session(small(), host)
    drive(session, host, 37)
    assert host.steps == session.raw_steps == 37


def test_folding_the_events_gives_the_sessions_state():
    session, events = run(small(), SimulatedHost(), validation=True)
    assert fold(events) == session.state


def test_every_snapshot_is_released_in_the_end():
    for values in ({}, {"replay": True, "keep_winner": True}, {"lr": "auto"}):
        session, _ = run(small(**values), SimulatedHost())
        assert session.host._tokens == {}


def test_one_host_with_parallel_allowed_works_one_by_one():
    one, _ = run(small(), SimulatedHost())
    four, _ = run(small(parallel=4), SimulatedHost())
    assert one.state.schedule == four.state.schedule


def test_long_segments_are_read_every_thousand_steps():
    sizes = []

    def read(losses):
        sizes.append(len(losses))
        return [float(loss) for loss in losses]

    run(Settings(lr=(1e-3, 1.0), total_steps=3500, n_probes=1), SimulatedHost(), read=read)
    assert max(sizes) == 1000


def test_remarks_reach_the_journal():
    host = SimulatedHost()
    session, events = new_session(small(), host)
    session.begin()
    session.note("hello")
    assert events[-1] == Noted("hello")


# Steps that mixed precision skips


@given(paper_settings(), st.booleans(), st.integers(2, 9))
def test_skipped_steps_are_not_counted(settings, validation, every):
    host = SimulatedHost(batch_noise=0.0)  # noise would depend on how often the host was called
    session, _ = new_session(settings, host, validation=validation, read=lambda ls: [v for v in ls if v is not None])
    session.begin()
    calls = skipped = 0
    while not session.done:
        calls += 1
        if calls % every == 0:
            skipped += 1
            session.step(None)  # no update happened
        else:
            session.step(host.step())
    plain, _ = run(settings, SimulatedHost(batch_noise=0.0), validation=validation)
    assert skipped
    assert session.state.schedule == plain.state.schedule
    assert session.state.raw_steps == host.steps == plain.state.raw_steps
    assert session.state.evaluations == plain.state.evaluations


# Kill and resume


@st.composite
def any_settings(draw):
    settings = draw(paper_settings())
    replay = draw(st.booleans())
    return settings.with_(
        total_steps=settings.total_steps + 120,
        replay=replay,
        keep_winner=replay and draw(st.booleans()),
        abort_diverged=draw(st.booleans()),
        max_lr_move=draw(st.sampled_from([None, 3.0])),
        warmup_steps=draw(st.sampled_from([0, 25])),
        final_anneal=draw(st.sampled_from([0.0, 0.1])),
        lr=draw(st.sampled_from([settings.lr, settings.lr, "auto"])),
        range_steps=30,
    )


def resume(session, settings, host, **options):
    """Another process: a copy of the host that stands where the first did, and a session from JSON."""
    values = json.loads(json.dumps(session.state_dict(), allow_nan=False))
    host = copy.deepcopy(host)
    host.lr = 123.0  # what a fresh optimizer has; the session must set its own
    resumed, events = new_session(settings, host, **options)
    resumed.load_state_dict(values)
    return resumed, events, host


@given(any_settings(), hosts(RecordingHost), st.booleans(), st.data())
def test_run_killed_at_any_step_goes_on_exactly(settings, make, validation, data):
    whole, _ = run(settings, make(), validation=validation)
    host = make()
    session, _ = new_session(settings, host, validation=validation)
    cuts = data.draw(st.lists(st.integers(0, whole.raw_steps), min_size=1, max_size=3).map(sorted))
    for cut in cuts:
        drive(session, host, cut - host.steps)
        before = (session.lr, session.exploring, session.raw_steps, session.committed_steps, session.command)
        session, _, host = resume(session, settings, host, validation=validation)
        assert (session.lr, session.exploring, session.raw_steps, session.committed_steps, session.command) == before
        assert session.done or host.lr == session.lr
    drive(session, host)
    assert repr(session.state) == repr(whole.state)
    assert host.lrs == whole.host.lrs
    assert repr(host.mean_square) == repr(whole.host.mean_square)
    assert host.position == whole.host.position
    assert host._tokens == {}


@pytest.mark.parametrize("values", [{}, {"replay": True, "keep_winner": True, "warmup_steps": 7, "final_anneal": 0.1}])
def test_no_step_is_a_bad_moment_for_a_checkpoint(values):
    settings = small(total_steps=120, stage_steps=40, max_stage_steps=60, n_probes=2, **values)
    whole, _ = run(settings, SimulatedHost(), validation=True)
    for cut in range(whole.raw_steps + 1):
        host = SimulatedHost()
        session, _ = new_session(settings, host, validation=True)
        drive(session, host, cut)
        session, _, host = resume(session, settings, host, validation=True)
        drive(session, host)
        assert session.state == whole.state, f"cut at step {cut}"
        assert (host.mean_square == whole.host.mean_square).all()


def test_taking_a_checkpoint_disturbs_nothing():
    plain, _ = run(small(), SimulatedHost(), validation=True)
    session, _ = run_altered(
        small(), SimulatedHost(), lambda session, loss: (session.state_dict(), loss)[1], validation=True
    )
    assert session.state == plain.state


def test_checkpoint_taken_before_the_beginning_begins_the_run():
    host = SimulatedHost()
    session, _ = new_session(small(), host)
    resumed, _, host = resume(session, small(), host)
    drive(resumed, host)
    assert resumed.state == run(small(), SimulatedHost())[0].state


def test_journal_of_a_resumed_run_folds_to_its_state(tmp_path):
    settings = small()
    host = SimulatedHost()
    session, _ = new_session(settings, host, journal=Journal.create(tmp_path))
    drive(session, host, 125)
    saved, saved_host = session.state_dict(), copy.deepcopy(host)
    drive(session, host, 300)  # goes on, and is killed: what the journal holds of it does not count

    book, events = Journal.reopen(tmp_path)
    assert repr(fold(events)) == repr(session.state)
    resumed, _ = new_session(settings, saved_host, journal=book)
    resumed.load_state_dict(saved, own_journal=True)
    drive(resumed, saved_host)
    written = journal.read(tmp_path)
    assert len(of_kind(written, Resumed)) == 1
    assert fold(written) == resumed.state == run(settings, SimulatedHost())[0].state


def test_checkpoint_may_be_taken_by_a_listener_whenever_a_stretch_was_committed():
    settings = small(replay=True, keep_winner=True, warmup_steps=20, final_anneal=0.1)
    whole, _ = run(settings, SimulatedHost())
    host, saved = SimulatedHost(), []
    session, _ = new_session(settings, host)

    def save(event):
        if isinstance(event, (Committed, Finished)):
            saved.append((json.dumps(session.state_dict()), copy.deepcopy(host)))

    session.listeners.append(save)
    drive(session, host)
    assert len(saved) == 6
    for values, there in saved:
        resumed, _ = new_session(settings, there)
        resumed.load_state_dict(json.loads(values))
        drive(resumed, there)
        assert resumed.state == whole.state
        assert (there.mean_square == whole.host.mean_square).all()


def test_checkpoint_may_be_taken_by_a_listener_when_a_probe_was_answered():
    whole, _ = run(small(replay=True), SimulatedHost())
    host, saved = SimulatedHost(), []
    session, _ = new_session(small(replay=True), host)

    def save(event):
        if isinstance(event, Probed):
            saved.append((json.dumps(session.state_dict()), copy.deepcopy(host)))

    session.listeners.append(save)
    drive(session, host)
    for values, there in saved:
        resumed, _ = new_session(small(replay=True), there)
        resumed.load_state_dict(json.loads(values))
        drive(resumed, there)
        assert resumed.state.schedule == whole.state.schedule


def test_checkpoint_loaded_beside_a_new_journal_leaves_one_that_can_be_read(tmp_path):
    host = SimulatedHost()
    session, _ = new_session(small(), host, journal=Journal.create(tmp_path / "a"))
    drive(session, host, 125)
    resumed, _ = new_session(small(), copy.deepcopy(host), journal=Journal.create(tmp_path / "b"))
    resumed.begin()
    resumed.load_state_dict(session.state_dict())
    assert fold(journal.read(tmp_path / "b")) == resumed.state


# Faults of the user's own code


class Flaky(SimulatedHost):
    """An `evaluate` that fails at some of its calls."""

    def __init__(self, *fails):
        super().__init__()
        self.calls, self.fails = 0, fails

    def evaluate(self):
        self.calls += 1
        if self.calls in self.fails:
            raise OSError("no validation set")
        return super().evaluate()


@pytest.mark.parametrize("fails", [(1,), (4,), (7,), (16,), (1, 2, 3)])
def test_evaluate_that_raises_undoes_the_probe_and_the_run_can_go_on(fails):
    plain, _ = run(small(), SimulatedHost(), validation=True)
    host = Flaky(*fails)
    session, _ = new_session(small(), host, validation=True)
    for _ in fails:
        with pytest.raises(
            RuntimeError, match=r"`evaluate` failed in probe \d of stage 2, after 300 .*no validation set"
        ):
            drive(session, host)
        assert session.exploring
        assert session.command_steps == 0
        assert (host.mean_square == host._tokens[session.base][0]).all()
        assert host.lr == session.lr
    drive(session, host)
    assert session.state.schedule == plain.state.schedule
    assert session.state == plain.state
    assert (host.mean_square == plain.host.mean_square).all()


def test_error_of_evaluate_keeps_its_cause():
    host = Flaky(1)
    session, _ = new_session(small(), host, validation=True)
    with pytest.raises(RuntimeError) as caught:
        drive(session, host)
    assert isinstance(caught.value.__cause__, OSError)


def test_rollback_begins_the_probe_again_and_leaves_a_commit_alone():
    host = SimulatedHost()
    session, _ = new_session(small(replay=True), host)
    drive(session, host, 15)
    lr = session.lr
    session.rollback()
    assert (session.command_steps, session.lr, host.lr) == (0, lr, lr)
    drive(session, host, 35)
    assert not session.exploring
    done = session.command_steps
    session.rollback()
    assert session.command_steps == done > 0


def test_refresh_takes_the_snapshot_again_after_a_change_from_outside():
    host = SimulatedHost()
    session, _ = new_session(small(), host)
    session.begin()
    host.mean_square[:] = 0.5
    session.refresh()
    drive(session, host, 10)
    assert (host.mean_square == 0.5).all()  # restored for the second probe
    assert host.lr == session.lr
    assert len(host._tokens) == 1


def test_loss_that_is_not_finite_in_a_commit_does_not_stop_the_run():
    def alter(session, loss):
        return math.nan if isinstance(session.command, Commit) and session.command_steps % 7 == 3 else loss

    session, events = run_altered(small(), SimulatedHost(), alter)
    assert session.state.committed_steps == 700
    assert any(map(math.isnan, of_kind(events, Committed)[0].losses))


# Range test


@pytest.mark.parametrize("bad_from", [0, 3, 60])
def test_range_test_that_diverges_is_stopped_and_the_run_goes_on(bad_from):
    def alter(session, loss):
        ranging = isinstance(session.command, Probe) and session.command.stage < 0
        return math.nan if ranging and session.command_steps >= bad_from else loss

    session, events = run_altered(small(lr="auto"), SimulatedHost(), alter)
    (aborted,) = of_kind(events, Aborted)
    assert aborted.steps == bad_from + 1
    (ranged,) = of_kind(events, Ranged)
    assert 0 < ranged.lr_min < ranged.lr_max
    assert session.state.committed_steps == 700


# The pieces


def test_locate_finds_the_segment_and_the_place_in_it():
    profile = (Segment(3, 0.1, 0.1), Segment(2, 0.2, 0.2))
    assert [locate(profile, i) for i in (0, 2, 3, 4)] == [
        (profile[0], 0),
        (profile[0], 2),
        (profile[1], 0),
        (profile[1], 1),
    ]
    with pytest.raises(IndexError, match="0 past the end"):
        locate(profile, 5)


@pytest.mark.parametrize(
    ("losses", "recent", "verdict"),
    [
        ([1.0, 1.1, math.nan], 1, True),
        ([1.0, 1.1, math.inf], 1, True),
        ([2.0] * 10 + [2.5] * 5, 5, False),
        ([2.0] * 10 + [20.0] * 5, 5, True),
        ([-50.0] * 10 + [-40.0] * 5, 5, False),
        ([-50.0] * 10 + [500.0] * 5, 5, True),
        ([1.0, 2.0, 0.5, 1.5] * 4 + [3.0, 1.0, 30.0, 1.0], 4, False),  # a spike is no divergence
    ],
)
def test_divergence_is_a_level_far_above_the_start_or_a_loss_that_is_not_finite(losses, recent, verdict):
    assert diverged(losses, recent) is verdict


def test_profile_of_many_segments_runs_each_at_its_own_lr():
    """What the horizon strategy will ask for, through the same session."""
    profile = (Segment(5, 0.0, 0.1), Segment(3, 0.1, 0.1), Segment(4, 0.1, 0.0))

    class Fixed:
        name = "fixed"

        def decide(self, state):
            return Probe(0, 0, profile) if not state.probes else Commit(0, constant(700, 0.1))

        def judge(self, state, probe, losses):
            from autolrs.core.forecast import forecast

            return forecast(losses, len(losses))

        def retained(self, state):
            return frozenset()

    host = RecordingHost()
    session = Session(host, small(), Fixed())
    drive(session, host)
    assert host.lrs[:12] == profile_lrs(profile)
    assert profile_steps(profile) == 12
    assert engine.decide(session.state, Fixed()).reason == "total_steps reached"


@pytest.mark.parametrize(("limits", "steps"), [((1e9,) * 5, 12), ((1e9, 0.0), 8), ((1e9, 1e9, 0.0), 12), ((0.0,), 4)])
def test_probe_is_stopped_at_the_check_whose_limit_its_mean_loss_exceeds(limits, steps):
    """Checks are 4 steps apart; a segment that ends between two of them is no check."""
    profile = (Segment(2, 0.0, 0.1), Segment(10, 0.1, 0.0))

    class Limited:
        name = "limited"

        def decide(self, state):
            if state.probes:
                return Commit(0, constant(700, 0.1))
            return Probe(0, 0, profile, check_every=4, limits=limits)

        def judge(self, state, probe, losses):
            return Forecast(losses[-1], 0.0, 0.0, losses[-1], "ok")

        def retained(self, state):
            return frozenset()

    host, events = SimulatedHost(), []
    session = Session(host, small(), Limited())
    session.listeners.append(events.append)
    drive(session, host)
    (answer,) = of_kind(events, Probed, Aborted)
    assert answer.steps == steps
    if isinstance(answer, Probed):
        assert answer.checks == pytest.approx([sum(answer.losses[i : i + 4]) / 4 for i in (0, 4, 8)])
    else:
        assert f"clearly losing after {steps} steps" in answer.reason
    assert engine.fold(events) == session.state


def test_settings_that_do_nothing_are_in_the_journal():
    session, events = new_session(small(n_probes=2, max_cost=1.5), SimulatedHost())
    session.begin()
    assert events[1] == Noted("settings that do nothing under strategy 'paper': max_cost")
