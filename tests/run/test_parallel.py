"""Parallel runs on a virtual clock: one worker is a session, the wall-clock law, faults, a driver that is killed."""

from __future__ import annotations

import json
import math
import random
from collections import defaultdict
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from autolrs.cli.doctor import examine
from autolrs.core import strategies
from autolrs.core.settings import Settings
from autolrs.core.strategies.paper import Paper
from autolrs.core.types import Aborted, Asked, Averaged, Commit, Committed, Failed, Noted, Probe, Probed, Wait
from autolrs.run import durable, journal
from autolrs.run.faults import NotFiniteError
from autolrs.run.parallel import Driver
from autolrs.run.session import Session, drive
from autolrs.testing import SimulatedHost
from autolrs.testing.pool import VirtualPool
from helpers import small
from unwritable import read_only


class Validated(SimulatedHost):
    """One with the user's `evaluate`, and an optimizer that came with an LR."""

    validation, base_lr = True, 0.05


def horizon(total=2000, **values):
    return Settings.make(strategy="horizon", total_steps=total, **values)


def parallel(settings, size=1, make=SimulatedHost, *, run_dir=None, timeout=None, stop=None, **faults):
    """A run on `size` workers; `stop` is called with every event and may raise."""
    pool = VirtualPool(make, size, **faults)
    driver = Driver(pool, strategies.get(settings.strategy), run_dir=run_dir, timeout=timeout)
    events = []
    driver.listeners += [events.append, *([stop] if stop else [])]
    driver.start(settings.with_(parallel=size))
    driver.run()
    return driver, pool, events


def resumed(run_dir, size=1, make=SimulatedHost, stop=None, **faults):
    settings = journal.read(run_dir)[0].settings
    driver = Driver(VirtualPool(make, size, **faults), strategies.get(settings["strategy"]), run_dir=run_dir)
    driver.listeners += [stop] if stop else []
    driver.resume()
    driver.run()
    return driver


def notes(events):
    return [event.message for event in events if isinstance(event, Noted)]


def final(driver):
    host = SimulatedHost()
    host.loads(driver.training_state)
    return host


# One worker


def test_what_the_training_says_is_usual_is_taken_unless_it_is_given():
    class Told(SimulatedHost):
        usual_lr = 0.25
        proportional_steps = normalised = trained_before = True
        rectified, uncorrected = 0.9, 1.0

    for told, expected in (({}, 0.25), ({"usual_lr": 0.5}, 0.5)):
        driver, _, _ = parallel(horizon(600, **told), 1, Told)
        settings = driver.state.settings
        assert settings.usual_lr == expected and settings.proportional_steps and settings.trained_before
        assert settings.normalised and (settings.rectified, settings.uncorrected) == (0.9, 1.0)
    settings = parallel(horizon(600), 1, SimulatedHost)[0].state.settings
    assert not settings.proportional_steps and not settings.trained_before and not settings.normalised


@pytest.mark.parametrize(
    ("settings", "make"),
    [
        (small(), SimulatedHost),
        (small(replay=True), SimulatedHost),
        (Settings.make("practical", lr=(1e-3, 1.0), total_steps=700, stage_steps=100, n_probes=4), Validated),
        (small(lr="auto", replay=True, warmup_steps=20), SimulatedHost),
        (small(max_stage_steps=100, eval_every=2), Validated),
        (horizon(), SimulatedHost),
        (horizon(), Validated),
        (horizon(80), SimulatedHost),
        (horizon(replan_at=(0.25,)), Validated),
    ],
    ids=[
        "strict",
        "replay",
        "practical",
        "auto",
        "validation",
        "horizon",
        "horizon-validation",
        "horizon-tiny",
        "replan",
    ],
)
def test_one_worker_does_what_a_session_does_to_the_bit(settings, make):
    host = make()
    if make is Validated:
        settings = settings.with_(base_lr=host.base_lr)
    strategy = strategies.get(settings.strategy)
    stream = host.stream if settings.replay else None
    session = Session(host, settings, strategy, validation=make is Validated, stream=stream)
    expected = []
    session.listeners.append(expected.append)
    drive(session, host)
    driver, _, events = parallel(settings, 1, make)
    assert events == expected
    assert driver.state == session.state
    assert np.array_equal(final(driver).mean_square, host.mean_square)
    assert final(driver).position == host.position


# Several


@pytest.mark.parametrize("size", [1, 2, 3, 4, 8, 10, 16, 64])
def test_wall_clock_follows_the_law(size):
    settings = Settings(lr=(1e-3, 1.0), total_steps=4000, stage_steps=1000, max_stage_steps=1000, replay=True)
    _, pool, _ = parallel(settings, size)
    assert pool.clock / 4000 == pytest.approx(1 + math.ceil(10 / size) * 0.1)


def test_a_state_travels_once_a_stage_to_each_worker_that_needs_it():
    driver, pool, _ = parallel(small(replay=True), 2)
    assert driver.state.stage == 3
    assert pool.travelled == 2 + 1 + 1  # the start to both, then each stage's to the one that did not commit


@pytest.mark.parametrize(("settings", "workers"), [(small(replay=True), 4), (horizon(), 2)], ids=["paper", "horizon"])
def test_probes_of_a_stage_start_from_the_same_state_and_batches_on_every_worker(settings, workers):
    _, pool, events = parallel(settings, 4)
    first = defaultdict(set)
    for event in events:
        if isinstance(event, Probed):
            first[event.stage].add(event.losses[0])
    assert {len(losses) for losses in first.values()} == {1}
    assert len({worker for worker, _ in pool.jobs}) == workers


def test_no_more_probes_are_out_than_there_are_workers_and_none_is_tried_twice():
    _, pool, events = parallel(small(n_probes=7, replay=True), 3)
    lrs = defaultdict(list)
    for event in events:
        if isinstance(event, Probed):
            lrs[event.stage].append(event.lr)
    assert all(len(set(tried)) == 7 for tried in lrs.values())
    assert max(len(job.state.outstanding) for _, job in pool.jobs) == 3


@given(
    seed=st.integers(0, 10**6),
    size=st.integers(2, 8),
    limit=st.sampled_from([math.inf, 0.05]),
    total=st.sampled_from([500, 1000, 2000]),  # at 1000 a run is stopped because it is losing
    replans=st.sampled_from([{}, {"replan_at": (0.25, 0.5), "max_cost": 1.3, "horizon_shift": -1.0}]),
)
@hypothesis_settings(max_examples=20)
def test_horizon_tries_and_chooses_the_same_whatever_the_workers_and_the_order_of_answers(
    seed, size, limit, total, replans
):
    class Fragile(SimulatedHost):
        def step(self):
            loss = super().step()
            return loss if self.lr <= limit else math.nan

    rng = random.Random(seed)
    one, _, events = parallel(horizon(total, **replans), 1, Fragile)
    slow = {number: rng.uniform(0.5, 2.0) for number in range(30)}
    many, pool, others = parallel(horizon(total, **replans), size, Fragile, slow=slow)
    assert many.state.schedule == one.state.schedule
    assert many.state.raw_steps == one.state.raw_steps
    answers = [
        {(type(e), e.stage, e.index, e.lr, e.steps) for e in found if isinstance(e, (Probed, Aborted))}
        for found in (events, others)
    ]
    assert answers[0] == answers[1]
    assert max(len(job.state.outstanding) for _, job in pool.jobs) <= 3


def test_order_of_arrival_does_not_change_what_the_paper_strategy_commits_where_the_lrs_are_the_same():
    settings = small(search="grid", replay=True)
    found = set()
    for seed in range(6):
        rng = random.Random(seed)
        driver, _, _ = parallel(settings, 4, slow={number: rng.uniform(0.5, 2.0) for number in range(40)})
        found.add(driver.state.schedule.segments)
    assert len(found) == 1


def test_the_kept_winner_goes_on_from_its_own_end_on_another_worker():
    settings = small(replay=True, keep_winner=True, search="grid")
    driver, pool, events = parallel(settings, 4)
    commits = [event for event in events if isinstance(event, Committed)]
    assert [event.steps for event in commits] == [90, 180, 360]
    plain, _, _ = parallel(small(replay=True, search="grid"), 4)
    assert driver.state.schedule == plain.state.schedule
    assert np.array_equal(final(driver).mean_square, final(plain).mean_square)
    assert pool.clock < 700 * 1.1


def test_a_guarded_stretch_that_fails_is_tried_again_lower():
    class Cliff(SimulatedHost):
        def step(self):
            loss = super().step()
            return loss if self.lr <= 0.05 or self.position < 1000 else math.nan

    driver, _, events = parallel(horizon(lr=(1e-3, 1.0)), 2, Cliff)
    assert any(isinstance(event, Failed) for event in events)
    assert driver.state.committed_steps == 2000
    assert driver.state.schedule.lrs()[1100] <= 0.05


@pytest.mark.parametrize("first", [math.nan, 2.0])
def test_where_every_lr_breaks_the_driver_says_so_or_that_the_data_do_it(first):
    class Broken(SimulatedHost):
        def step(self):
            super().step()
            return first if self.position == 1 else math.nan

    expected = (
        pytest.raises(NotFiniteError, match=r"the loss is nan before the first update .* broke 5 times")
        if math.isnan(first)
        else pytest.warns(RuntimeWarning, match="broke 5 times: the LR is not what does it, so from step 0 on nothing")
    )
    with expected:
        driver, _, events = parallel(horizon(), 2, Broken)
        assert driver.state.committed_steps == 2000
        assert any(isinstance(event, Noted) and "nothing is undone" in event.message for event in events)


# Averaging


class Averaging(SimulatedHost):
    """One whose averager only notes what it is asked for, in states that travel too."""

    validation = True
    averager = None

    def prepare(self, settings, note):
        self.averager = self if settings.averaging else None
        self.taken, self.finished = [], []

    @property
    def begun(self):
        return bool(self.taken)

    def update(self):
        self.taken.append(self.position)

    def finish(self, *, average):
        self.finished.append(average)

    def evaluate(self, *, raw=False):
        return 1.0 + raw

    def snapshot(self):
        token = super().snapshot()
        self._tokens[token] += (list(self.taken),)
        return token

    def restore(self, token):
        *saved, taken = self._tokens[token]
        self._tokens[token], kept = tuple(saved), self._tokens[token]
        super().restore(token)
        self._tokens[token], self.taken = kept, list(taken)

    def dumps(self):
        return json.dumps([super().dumps().decode(), self.taken, self.finished]).encode()

    def loads(self, data):
        values, self.taken, self.finished = json.loads(data)
        super().loads(values.encode())


@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize("size", [1, 3])
def test_all_committed_steps_and_no_others_go_into_the_average_which_is_handed_over_once(size, together):
    driver, _, events = parallel(horizon(1100, averaging=True), size, Averaging, together=together)
    end = Averaging()
    end.loads(driver.training_state)
    assert end.taken == list(range(1, 1101))
    assert end.finished == [True]
    assert [event for event in events if isinstance(event, Averaged)] == [Averaged(True, 2.0, 1.0)]
    assert driver.state.evaluations == 2 + sum(event.evaluations for event in events if isinstance(event, Probed))


def test_a_stretch_that_failed_is_taken_out_of_the_average():
    class Cliff(Averaging):
        def step(self):
            loss = super().step()
            return loss if self.lr <= 0.05 or self.position < 1000 else math.nan

    driver, _, events = parallel(horizon(lr=(1e-3, 1.0), averaging=True), 2, Cliff)
    assert any(isinstance(event, Failed) for event in events)
    end = Averaging()
    end.loads(driver.training_state)
    assert len(end.taken) == 2000 < end.taken[-1]  # the data went on


def test_a_training_that_does_not_average_by_default_gets_the_settings_without():
    plain = horizon(600)
    for make, averages in ((SimulatedHost, False), (Averaging, True)):
        driver = Driver(VirtualPool(make), strategies.get("horizon"))
        driver.start(horizon(600, averaging=True), plain=plain)
        assert driver.state.settings.averaging == averages
        assert driver.state.settings.hold_until == (0.5 if averages else 0.0)
        assert driver.run().finished


# Faults


@pytest.mark.parametrize("settings", [small(replay=True, search="grid"), horizon()], ids=["paper", "horizon"])
@pytest.mark.parametrize("number", range(1, 9))
def test_a_worker_that_dies_is_begun_anew_and_its_command_issued_again(settings, number):
    calm, _, _ = parallel(settings, 3)
    driver, pool, events = parallel(settings, 3, deaths={number})
    assert driver.state.schedule == calm.state.schedule
    assert np.array_equal(final(driver).mean_square, final(calm).mean_square)
    assert ["died (injected)" in note and "is issued again" in note for note in notes(events)].count(True) == 1
    again = [job for _, job in pool.jobs if job.command == pool.jobs[number - 1][1].command]
    assert len(again) == 2


def test_a_probe_whose_workers_all_die_is_given_up_and_cannot_win():
    settings = small(replay=True, search="grid", n_probes=4)
    calm, _, _ = parallel(settings, 1)
    # With one worker the jobs 2, 3 and 4 are the second probe's three attempts.
    driver, _, events = parallel(settings, 1, deaths={2, 3, 4})
    aborted = [event for event in events if isinstance(event, Aborted)]
    assert [(event.stage, event.index, event.steps) for event in aborted] == [(0, 1, 0)]
    assert "given up after 3 attempts" in aborted[0].reason
    assert driver.state.committed_steps == calm.state.committed_steps
    assert driver.state.segments[0].lr_start != aborted[0].lr


@pytest.mark.parametrize(("settings", "deaths"), [(small(), {5, 6, 7}), (horizon(), {1, 2, 3})], ids=["commit", "ramp"])
def test_what_the_run_cannot_do_without_is_an_error_after_three_attempts(settings, deaths):
    with pytest.raises(RuntimeError, match="failed 3 times; the last time: worker 0 died"):
        parallel(settings, 1, deaths=deaths)


def test_a_straggler_holds_up_the_rest_no_longer_than_the_stated_time_out():
    settings = small(total_steps=100, search="grid", replay=True)
    calm, _, _ = parallel(settings, 2)
    driver, pool, events = parallel(settings, 2, slow={2: math.inf}, timeout=15.0)
    # Four probes of 10 s on two workers; the one that hangs is noticed at 15 s and runs again from 20 s on at the
    # latest, then the commit: never later than the time-out and one probe after the others.
    assert pool.clock <= 100 + 20 + 15 + 10
    assert driver.state.schedule == calm.state.schedule
    assert any("has been at probe 1 of stage 0" in note and "first answer counts" in note for note in notes(events))
    assert any("has not answered for 30 s and was ended; it was begun anew" in note for note in notes(events))


def test_without_a_stated_time_out_the_pace_of_the_others_tells_a_straggler():
    settings = small(total_steps=100, search="grid", replay=True)
    driver, pool, _ = parallel(settings, 2, slow={2: math.inf})
    assert driver.state.finished
    assert pool.clock <= 100 + 20 + 5 * 10 + 10


def test_the_first_of_two_answers_counts_and_the_second_is_ignored():
    settings = small(total_steps=100, search="grid", replay=True)
    driver, pool, events = parallel(settings, 3, slow={2: 1.9}, timeout=11.0)
    probe = [job.number for _, job in pool.jobs if job.command == pool.jobs[1][1].command]
    assert len(probe) == 2  # the straggler answered at 19 s, before its copy did
    assert sum(isinstance(event, Probed) and event.index == 1 for event in events) == 1
    assert driver.state.finished


def test_a_hung_lone_worker_is_ended_and_begun_anew():
    driver, _, events = parallel(small(), 1, slow={3: math.inf}, timeout=40.0)
    assert driver.state.finished
    assert sum("has not answered for 80 s" in note for note in notes(events)) == 1


def test_a_straggling_commit_is_given_to_another_worker():
    settings = small(total_steps=100, n_probes=2, search="grid", replay=True)
    calm, _, _ = parallel(settings, 2)
    driver, _, _ = parallel(settings, 2, slow={3: math.inf})
    assert driver.state.schedule == calm.state.schedule
    assert np.array_equal(final(driver).mean_square, final(calm).mean_square)


def test_the_time_a_worker_takes_to_start_is_not_the_probes():
    settings = small(total_steps=100, search="grid", replay=True)
    driver, pool, events = parallel(settings, 2, deaths={2}, timeout=15.0, start_seconds=100.0)
    assert driver.state.finished
    assert sum("died" in note for note in notes(events)) == 1
    assert not any("has been at" in note or "has not answered" in note for note in notes(events))
    assert pool.clock == pytest.approx(100 + 40 + 100)  # one worker goes on alone while the other starts anew


def test_an_error_of_the_users_code_is_raised():
    class Broken(Validated):
        def evaluate(self):
            raise ZeroDivisionError("no data")

    with pytest.raises(RuntimeError, match=r"`evaluate` failed in probe 0 of stage 0"):
        parallel(small(max_stage_steps=100, eval_every=2), 1, Broken)


# Commits on all workers together


@pytest.mark.parametrize(
    "settings",
    [small(replay=True, search="grid"), small(replay=True, search="grid", keep_winner=True), horizon(3000)],
    ids=["paper", "kept winner", "horizon"],
)
def test_the_team_commits_and_the_workers_probe(settings):
    one, _, _ = parallel(settings, 3)
    driver, pool, events = parallel(settings, 3, together=True)
    assert driver.state.schedule == one.state.schedule
    assert np.array_equal(final(driver).mean_square, final(one).mean_square)
    assert {(worker == pool.team, isinstance(job.command, Commit)) for worker, job in pool.jobs} == {
        (True, True),
        (False, False),
    }
    assert sum("data-parallel training on all 3 workers" in note for note in notes(events)) == 1


def test_a_team_shortens_the_commits():
    settings = small(total_steps=100, n_probes=2, search="grid", replay=True)
    _, pool, _ = parallel(settings, 2, together=True)
    assert pool.clock == pytest.approx(10 + 100 / 2)


def test_a_team_that_loses_a_worker_commits_again_from_the_snapshot():
    settings = small(replay=True, search="grid")
    calm, pool, _ = parallel(settings, 2, together=True)
    number = next(job.number for worker, job in pool.jobs if worker == pool.team)
    driver, pool, events = parallel(settings, 2, together=True, deaths={number})
    assert driver.state.schedule == calm.state.schedule
    assert np.array_equal(final(driver).mean_square, final(calm).mean_square)
    lost = "the team of 2 workers died (injected): the commit of stage 0 is issued again"
    assert lost in notes(events)
    assert [worker for worker, job in pool.jobs if job.number in (number, number + 1)] == [2, 2]
    with pytest.raises(RuntimeError, match="the commit of stage 0 failed 3 times; the last time: the team of 2"):
        parallel(settings, 2, together=True, deaths={number, number + 1, number + 2})


def test_a_team_does_not_wait_for_a_straggler_whose_probe_another_answered():
    settings = small(total_steps=100, search="grid", replay=True)
    driver, pool, _ = parallel(settings, 2, together=True, slow={2: math.inf}, timeout=15.0)
    assert driver.state.finished
    assert pool.clock <= 20 + 15 + 10 + 50


def test_a_team_that_hangs_is_ended_once_there_is_a_pace_to_go_by():
    settings = small(replay=True, search="grid")
    calm, pool, _ = parallel(settings, 2, together=True)
    number = [job.number for worker, job in pool.jobs if worker == pool.team][1]
    driver, _, events = parallel(settings, 2, together=True, slow={number: math.inf})
    assert driver.state.schedule == calm.state.schedule
    assert sum("the team of 2 workers has not answered for 1.2e+03 s and was ended" in n for n in notes(events)) == 1
    assert not any("another gets it too" in note for note in notes(events))


# A driver that is killed


def short(**values):
    return small(total_steps=240, stage_steps=80, max_stage_steps=160, n_probes=3, replay=True, **values)


class Killed(BaseException):
    """As by a signal: nothing catches it."""


@pytest.mark.parametrize(
    ("settings", "size", "together"),
    [
        (short(keep_winner=True), 1, False),
        (short(search="grid"), 3, False),
        (short(search="grid"), 3, True),
        (horizon(1100), 3, False),
        (horizon(1100, replan_at=(0.25,), horizon_shift=-1.0), 2, False),
    ],
    ids=["paper, one worker", "paper, three", "paper, three together", "horizon", "horizon, re-planned"],
)
def test_a_killed_driver_goes_on_to_the_same_schedule_from_every_event(settings, size, together, tmp_path):
    whole, _, events = parallel(settings, size, together=together)
    for count in range(1, len(events)):
        folder = tmp_path / str(count)
        left = count

        def stop(event):
            nonlocal left
            left -= 1
            if left == 0:
                raise Killed

        with pytest.raises(Killed):
            parallel(settings, size, run_dir=folder, stop=stop, together=together)
        driver = resumed(folder, size, together=together)
        assert driver.state.schedule == whole.state.schedule, f"killed after event {count}: {events[count - 1]}"
        assert np.array_equal(final(driver).mean_square, final(whole).mean_square)
        failed = [check for check in examine(folder) if check.verdict in ("failed", "warning")]
        assert not failed


def test_answers_since_the_last_commit_are_not_asked_for_again(tmp_path):
    def stop(event):
        if isinstance(event, Probed) and (event.stage, event.index) == (1, 2):
            raise Killed

    with pytest.raises(Killed):
        parallel(small(replay=True), 1, run_dir=tmp_path, stop=stop)
    before = len(journal.read(tmp_path))
    resumed(tmp_path)
    asked = [event.command for event in journal.read(tmp_path)[before:] if isinstance(event, Asked)]
    assert isinstance(asked[0], Probe) and (asked[0].stage, asked[0].index) == (1, 3)


def test_a_run_can_be_killed_again_and_again(tmp_path):
    settings = small(replay=True, search="grid")
    whole, _, _ = parallel(settings, 2)

    def stop(event):
        if isinstance(event, (Probed, Committed)):
            raise Killed

    with pytest.raises(Killed):
        parallel(settings, 2, run_dir=tmp_path, stop=stop)
    for _ in range(100):
        try:
            driver = resumed(tmp_path, 2, stop=stop)
        except Killed:
            # Die right after every second answer: a commit whose state was not saved must be reached again.
            stop = None if isinstance(journal.read(tmp_path)[-1], Committed) else stop
            continue
        break
    assert driver.state.schedule == whole.state.schedule


def test_a_finished_run_resumes_to_its_result_and_writes_nothing(tmp_path):
    driver, _, _ = parallel(small(), 2, run_dir=tmp_path)
    before = (tmp_path / journal.NAME).read_bytes()
    again = resumed(tmp_path, 2)
    assert again.state == driver.state
    assert again.training_state == driver.training_state
    assert (tmp_path / journal.NAME).read_bytes() == before


def test_a_run_may_go_on_with_more_or_fewer_workers(tmp_path):
    def stop(event):
        if isinstance(event, Asked) and isinstance(event.command, Commit):
            raise Killed

    settings = small(replay=True, search="grid")
    whole, _, _ = parallel(settings, 3)
    for size in (1, 5):
        with pytest.raises(Killed):
            parallel(settings, 3, run_dir=tmp_path / str(size), stop=stop)
        assert resumed(tmp_path / str(size), size).state.schedule == whole.state.schedule


def test_a_state_file_that_is_damaged_is_refused(tmp_path):
    durable.save_state(tmp_path, 3, b"abc\ndef")
    assert durable.load_state(tmp_path) == (3, b"abc\ndef")
    path = tmp_path / durable.NAME
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ValueError, match="damaged: 6 bytes of 7"):
        durable.load_state(tmp_path)
    path.write_bytes(b"something else")
    with pytest.raises(ValueError, match="not a state of autolrs"):
        durable.load_state(tmp_path)


def test_a_journal_that_lost_events_is_refused(tmp_path):
    parallel(small(), 1, run_dir=tmp_path)
    path = tmp_path / journal.NAME
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:8]))
    with pytest.raises(journal.JournalError, match="the saved state is of event"):
        resumed(tmp_path)


def test_a_disk_that_cannot_be_written_keeps_the_run_going(tmp_path):
    (tmp_path / f"{durable.NAME}.partial").mkdir()
    with pytest.warns(RuntimeWarning, match=r"cannot write .*state\.bin"):
        driver, _, _ = parallel(small(), 2, run_dir=tmp_path)
    assert driver.state.finished


def test_a_folder_that_becomes_read_only_keeps_the_run_going_and_resumes_from_before(tmp_path):
    settings = small(replay=True, search="grid")
    whole, _, _ = parallel(settings, 2)
    with ExitStack() as stack:

        def close(event):
            if isinstance(event, Probed) and event.stage == 1 and event.index == 0:
                stack.enter_context(read_only(tmp_path))

        with pytest.warns(RuntimeWarning, match="cannot write") as caught:
            driver, _, _ = parallel(settings, 2, run_dir=tmp_path, stop=close)
    assert {Path(str(warning.message).split(":")[0]).name for warning in caught} == {
        *("journal.jsonl", "state.bin", "schedule.json")
    }
    assert driver.state.schedule == whole.state.schedule
    again = resumed(tmp_path, 2)
    assert again.state.schedule == whole.state.schedule
    assert np.array_equal(final(again).mean_square, final(whole).mean_square)


# What is refused


def test_a_strategy_that_waits_for_nothing_is_an_error():
    class Idle(Paper):
        def decide(self, state):
            return Wait()

    driver = Driver(VirtualPool(SimulatedHost, 2), Idle())
    driver.start(small())
    with pytest.raises(RuntimeError, match="'paper' waits for an answer, but nothing is under way"):
        driver.run()


def test_averaging_is_refused_where_the_training_cannot_before_the_run_begins(tmp_path):
    with pytest.raises(ValueError, match=r"`averaging` must be off where the training has no averager .*, got True"):
        parallel(horizon(averaging=True), run_dir=tmp_path)
    assert not (tmp_path / journal.NAME).exists()


def test_a_run_that_averages_does_not_go_on_with_a_training_that_cannot(tmp_path):
    def stop(event):
        if isinstance(event, Probed):
            raise Killed

    with pytest.raises(Killed):
        parallel(horizon(averaging=True), 1, Averaging, run_dir=tmp_path, stop=stop)
    with pytest.raises(ValueError, match="`averaging` must be off where the training has no averager"):
        resumed(tmp_path)
    assert resumed(tmp_path, 1, Averaging).state.finished


def test_values_that_make_no_sense_are_refused():
    with pytest.raises(ValueError, match="`timeout` must be above 0 seconds, got 0"):
        Driver(VirtualPool(SimulatedHost), strategies.get("paper"), timeout=0)
    with pytest.raises(ValueError, match="`keep_best` must be off"):
        parallel(horizon(keep_best=True))
