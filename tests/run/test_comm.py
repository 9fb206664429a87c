"""What ranks agree on, with threads for ranks: every exchange is real, only the wire is missing."""

import json
import math
import threading
from dataclasses import replace

import pytest

from autolrs.core import strategies
from autolrs.core.settings import Settings
from autolrs.core.types import Noted
from autolrs.run.comm import Alone, RankError, agree, average, first, share
from autolrs.run.session import Session, drive
from autolrs.testing.simulated import SimulatedHost


class Table:
    """Where threads lay down values and pick up everyone's."""

    def __init__(self, size):
        self.size, self.values = size, [None] * size
        self.barrier = threading.Barrier(size, timeout=20)
        self.exchanges = 0

    def all(self, rank, value):
        self.values[rank] = json.dumps(value)  # nothing but JSON may travel
        self.barrier.wait()
        found = [json.loads(text) for text in self.values]
        if self.barrier.wait() == 0:
            self.exchanges += 1
        return found


class Seat:
    """One rank's place at the table: a `Comm`."""

    def __init__(self, table, rank):
        self.table, self.rank, self.size = table, rank, table.size

    def gather(self, values, where):
        rows = self.table.all(self.rank, list(values))
        assert len({len(row) for row in rows}) == 1, "ranks gave different numbers of values"
        return rows

    def exchange(self, value, where):
        return self.table.all(self.rank, value)

    def broadcast(self, value, where):
        return self.table.all(self.rank, value)[0]

    def meet(self, where):
        self.table.all(self.rank, None)


def on_ranks(size, act):
    """`act(comm)` on every rank: what it returned, or what it raised."""
    table, found = Table(size), [None] * size

    def run(rank):
        try:
            found[rank] = act(Seat(table, rank))
        except Exception as error:
            found[rank] = error
            if not isinstance(error, (RankError, ValueError, OSError, RuntimeError)) or isinstance(
                error, threading.BrokenBarrierError
            ):
                table.barrier.abort()

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def test_losses_are_averaged_in_one_exchange():
    tables = []

    def act(comm):
        tables.append(comm.table)
        return share(comm, [1.0 + comm.rank, 2.0], 2, 10)

    assert on_ranks(3, act) == [([2.0, 2.0], "")] * 3
    assert tables[0].exchanges == 1


def test_one_process_exchanges_nothing():
    assert share(Alone(), [1.0], 1, 0) == ([1.0], "")
    assert average(Alone(), lambda: 2, "here") == 2.0
    assert first(Alone(), lambda: {"a": 1}, "here") == {"a": 1}
    agree(Alone(), {"a": 1}, "here")


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_loss_that_is_not_finite_is_seen_by_all(bad):
    for shared in on_ranks(3, lambda comm: share(comm, [1.0, bad if comm.rank == 2 else 1.0], 2, 0)):
        assert shared.losses[0] == 1.0 and not math.isfinite(shared.losses[1])
        assert shared.remark == "losses that are not finite came from rank 2 alone"


def test_ranks_go_on_with_the_fewest_losses_where_one_skipped_a_step():
    def act(comm):
        return share(comm, [1.0, 2.0, 3.0][: 3 - comm.rank], 3, 7)

    assert on_ranks(2, act) == [([1.0, 2.0], "ranks counted [3, 2] steps since the last boundary: going on with 2")] * 2


def test_ranks_at_different_steps_all_stop():
    for error in on_ranks(2, lambda comm: share(comm, [1.0], 1, 40 + comm.rank)):
        assert isinstance(error, RankError)
        assert "different steps, 40 on rank 0, 41 on rank 1" in str(error)


def test_a_number_is_averaged_and_a_failure_is_everyones():
    assert on_ranks(2, lambda comm: average(comm, lambda: comm.rank, "`evaluate`")) == [0.5, 0.5]

    def fail(comm):
        def compute():
            if comm.rank == 1:
                raise OSError("gone")
            return 1.0

        return average(comm, compute, "`evaluate`")

    found = on_ranks(2, fail)
    assert isinstance(found[0], RankError) and str(found[0]) == "`evaluate` failed on rank 1"
    assert isinstance(found[1], OSError)


def test_rank_0_decides_and_its_failure_is_everyones():
    made = []
    assert on_ranks(3, lambda comm: first(comm, lambda: made.append(comm.rank) or comm.rank + 7, "x")) == [7, 7, 7]
    assert made == [0]
    found = on_ranks(2, lambda comm: first(comm, lambda: 1 / 0, "a decision"))
    assert isinstance(found[0], ZeroDivisionError)
    assert str(found[1]) == "a decision failed on rank 0: ZeroDivisionError: division by zero"


def test_a_setting_that_differs_is_named_on_every_rank():
    def act(comm):
        agree(comm, {"seed": 0, "n_probes": 3 + (comm.rank == 2)}, "the start")

    for error in on_ranks(3, act):
        assert isinstance(error, ValueError)
        assert str(error) == "`n_probes` is 3 on rank 0 and 4 on rank 2: all ranks must be given the same"


SETTINGS = {
    "paper": Settings.make(lr=(1e-3, 1.0), total_steps=400, stage_steps=100, max_stage_steps=200, n_probes=3),
    "range test": Settings.make(total_steps=400, stage_steps=100, max_stage_steps=100, n_probes=3, range_steps=60),
    "validation": Settings.make(
        lr=(1e-3, 1.0), total_steps=200, stage_steps=100, max_stage_steps=100, n_probes=3, eval_every=3
    ),
    "horizon": Settings.make(total_steps=600, strategy="horizon"),
}


@pytest.mark.parametrize("name", SETTINGS)
def test_every_rank_goes_through_the_same_run_and_rank_0_alone_decides(name):
    """Each rank's losses have noise of their own; decisions rest on the mean."""
    asked = []

    class Watched:
        def __init__(self, rank):
            self.strategy, self.name = strategies.get(SETTINGS[name].strategy), SETTINGS[name].strategy
            self.rank, self.retained = rank, self.strategy.retained

        def decide(self, state):
            asked.append(self.rank)
            return self.strategy.decide(state)

        def judge(self, state, probe, losses):
            asked.append(self.rank)
            return self.strategy.judge(state, probe, losses)

    def act(comm):
        host = SimulatedHost(seed=comm.rank)
        session = Session(host, SETTINGS[name], Watched(comm.rank), validation=name == "validation", comm=comm)
        lrs = []
        session.begin()
        while not session.done:
            lrs.append(session.step(host.step()).lr)
        return lrs, session.state

    (lrs, state), *others = on_ranks(3, act)
    assert set(asked) == {0} and len(lrs) > 250
    for other_lrs, other_state in others:
        assert other_lrs == lrs and other_state == state


def test_a_session_of_one_rank_is_that_of_no_ranks():
    def run(comm):
        host = SimulatedHost(seed=1)
        return drive(Session(host, SETTINGS["paper"], strategies.get("paper"), comm=comm), host)

    assert on_ranks(1, run) == [run(None)]


def test_a_session_that_lost_its_place_stops_all():
    def act(comm):
        host = SimulatedHost(seed=0)
        session = Session(host, SETTINGS["paper"], strategies.get("paper"), comm=comm)
        session.begin()
        session.state = replace(session.state, raw_steps=comm.rank)
        drive(session, host)

    for error in on_ranks(2, act):
        assert isinstance(error, RankError) and "different steps" in str(error)


def test_a_budget_is_changed_by_all_ranks_or_by_none():
    def act(totals):
        def run(comm):
            host = SimulatedHost(seed=comm.rank)
            session = Session(host, SETTINGS["horizon"], strategies.get("horizon"), comm=comm)
            while session.committed_steps < 100:
                drive(session, host, 1)
            session.extend(totals[comm.rank])
            return drive(session, host)

        return run

    for error in on_ranks(2, act([800, 900])):
        assert str(error) == "`total_steps` is 800 on rank 0 and 900 on rank 1: all ranks must be given the same"
    states = on_ranks(2, act([800, 800]))
    assert states[0] == states[1] and states[0].committed_steps == 800


def test_remarks_are_kept_by_rank_0_alone():
    def act(comm):
        session = Session(SimulatedHost(seed=0), SETTINGS["paper"], strategies.get("paper"), comm=comm)
        events = []
        session.listeners.append(events.append)
        session.note("look")
        return events

    assert on_ranks(2, act) == [[Noted("look")], []]
