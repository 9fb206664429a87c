"""`keep_best` on the simulated host: where it looks, what it keeps, what it leaves alone, and how it survives."""

from __future__ import annotations

import copy
import json
import math

import pytest

from autolrs.core import strategies
from autolrs.core.engine import fold
from autolrs.core.overfitting import MIN_LOOKS
from autolrs.core.settings import LOOKS, Settings
from autolrs.core.types import Aborted, Committed, Failed, Looked, Noted, Probed
from autolrs.run.session import Session, drive
from helpers import RecordingHost, of_kind

PAPER = {"lr": (1e-3, 1.0), "total_steps": 700, "stage_steps": 100, "max_stage_steps": 400, "n_probes": 4}
HORIZON = {"strategy": "horizon", "total_steps": 2400}
AUTO = {**HORIZON, "keep_best": "auto"}
TRAIN = {**PAPER, "total_steps": 600, "max_stage_steps": 6400}  # probes are judged by training losses: only looks ask
BOTH = pytest.mark.parametrize("values", [PAPER, HORIZON], ids=["paper", "horizon"])


class Overfitting(RecordingHost):
    """The validation loss falls with the training loss down to a point, and rises from there on."""

    asked, turn = 0, 0.03

    def evaluate(self):
        self.asked += 1
        return 1.0 + abs(math.log(self.loss() / self.turn))


def new(values, host=None, **more):
    config = Settings.make(**{"strategy": "paper", "keep_best": True, **values, **more})
    host = host or Overfitting()
    host.turn = 0.03 if config.strategy == "paper" else 0.002  # in the middle of either run
    stream = host.stream if config.replay else None
    session = Session(host, config, strategies.get(config.strategy), stream=stream, validation=True)
    events = []
    session.listeners.append(events.append)
    return session, host, events


def whole(values, host=None, **more):
    session, host, events = new(values, host, **more)
    drive(session, host)
    return session, host, events


@BOTH
def test_an_overfitting_tail_loses_nothing(values):
    session, host, events = whole(values)
    looks = of_kind(events, Looked)
    best = min(looks, key=lambda look: look.loss)
    assert session.state.best == best
    assert looks[0].loss > best.loss < looks[-1].loss - 0.3
    assert host.evaluate() == looks[-1].loss
    session.restore_best()
    assert host.evaluate() == best.loss
    assert fold(events) == session.state


@BOTH
def test_looks_are_spread_over_the_run_and_end_with_it(values):
    session, host, events = whole(values)
    steps = [look.step for look in of_kind(events, Looked)]
    total = values["total_steps"]
    assert len(steps) == LOOKS and steps[-1] == total
    assert max(b - a for a, b in zip([0, *steps], steps, strict=False)) <= total / LOOKS + 1
    assert session.state.evaluations == host.asked


def test_a_number_of_steps_that_looks_do_not_divide_ends_with_a_look_too():
    _, _, events = whole(PAPER, total_steps=709)
    steps = [look.step for look in of_kind(events, Looked)]
    assert steps == [*range(36, 709, 36), 709]


def test_without_an_end_it_looks_once_every_first_stage():
    session, host, events = new(PAPER, total_steps=None)
    drive(session, host, 2000)
    assert [look.step for look in of_kind(events, Looked)] == list(range(100, 1500, 100))


@BOTH
def test_looks_change_nothing_else(values):
    money = {"max_cost": 1.5}  # for both: what looks cost must not be missing in the search
    kept, host, _ = whole(values, **money)
    plain, other, events = whole(values, **money, keep_best=False)
    assert host.lrs == other.lrs
    assert list(host.mean_square) == list(other.mean_square)
    assert kept.state.schedule == plain.state.schedule
    assert not of_kind(events, Looked) and plain.state.best is None and other._tokens == {}


@BOTH
def test_one_state_is_kept_beside_those_of_the_search(values):
    most = {}
    for keep_best in (False, True):
        session, host, _ = new(values, keep_best=keep_best)
        session.begin()
        most[keep_best] = 0
        while not session.done:
            session.step(host.step())
            most[keep_best] = max(most[keep_best], len(host._tokens))
            assert sorted(session.tokens) == sorted(host._tokens)
    assert most[True] == most[False] + 1
    assert len(host._tokens) == 1


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_loss_that_is_not_finite_is_never_the_best(bad):
    class Broken(Overfitting):
        def evaluate(self):
            found = super().evaluate()
            return bad if self.asked % 2 else found

    session, _, events = whole(PAPER, Broken())
    looks = of_kind(events, Looked)
    assert session.state.best.loss == min(look.loss for look in looks if math.isfinite(look.loss))
    assert sum(not math.isfinite(look.loss) for look in looks) == LOOKS // 2


def test_what_cannot_be_restored_is_refused_and_the_reason_named():
    class Nothing(Overfitting):
        def evaluate(self):
            return math.nan

    session, _, _ = whole(PAPER, keep_best=False)
    with pytest.raises(RuntimeError, match="`keep_best` is off"):
        session.restore_best()
    session, host, _ = new(PAPER)
    session.begin()
    with pytest.raises(RuntimeError, match="in a probe: wait until `exploring` is False"):
        session.restore_best()
    while session.exploring:
        session.step(host.step())
    with pytest.raises(RuntimeError, match=r"no finite validation loss was seen so far .looked at every 35 committed"):
        session.restore_best()
    session, _, _ = whole(PAPER, Nothing())
    assert session.state.best is None
    with pytest.raises(RuntimeError, match="no state was kept"):
        session.restore_best()


@BOTH
def test_restored_in_the_middle_the_run_goes_on_from_there_at_its_own_lrs(values):
    plain, other, _ = whole(values)
    session, host, events = new(values)
    session.begin()
    while not (session.committed_steps > 0.6 * values["total_steps"] and session.state.best and not session.exploring):
        session.step(host.step())
    lr, best = session.lr, session.state.best
    session.restore_best()
    assert (host.lr, session.lr) == (lr, lr) and host.evaluate() == best.loss
    assert f"going on from the best state, of step {best.step}" in events[-1].message
    drive(session, host)
    assert session.committed_steps == values["total_steps"]
    if values is HORIZON:  # there is no search any more that could see it
        assert host.lrs == other.lrs and session.state.schedule == plain.state.schedule


def test_an_evaluate_that_fails_costs_a_look_and_no_more():
    class Failing(Overfitting):
        def evaluate(self):
            found = super().evaluate()
            if self.asked in (3, LOOKS):
                raise OSError("no such file")
            return found

    _, other, _ = whole(TRAIN, keep_best=False)
    with pytest.warns(RuntimeWarning, match=r"`evaluate` failed after (90|600) committed steps"):
        session, host, events = whole(TRAIN, Failing())
    assert session.done and host.lrs == other.lrs
    assert len(of_kind(events, Looked)) == LOOKS - 2
    assert sum("leaves that look out: OSError" in note.message for note in of_kind(events, Noted)) == 2


@pytest.mark.parametrize("when", [3, 10, 20])  # in a stage, at a stage's end, at the end of the run
def test_an_interrupt_in_a_look_leaves_the_run_whole(when):
    class Impatient(Overfitting):
        def evaluate(self):
            found = super().evaluate()
            if self.asked == when:
                raise KeyboardInterrupt
            return found

    plain, other, _ = whole(TRAIN)
    session, host, events = new(TRAIN, Impatient())
    with pytest.raises(KeyboardInterrupt):
        drive(session, host)
    drive(session, host)
    assert host.lrs == other.lrs and session.state.schedule == plain.state.schedule
    assert len(of_kind(events, Looked)) == LOOKS - 1


@pytest.mark.parametrize("values", [PAPER, HORIZON, AUTO], ids=["paper", "horizon", "auto"])
def test_saved_at_any_step_and_in_any_look_a_run_ends_with_the_same_best(values):
    plain, other, _ = whole(values)
    session, host, _ = new(values)
    saved = []

    def save():
        saved.append((json.dumps(session.state_dict()), copy.deepcopy(host)))

    session.listeners.append(lambda event: save() if isinstance(event, (Looked, Committed)) else None)
    session.begin()
    while not session.done:
        session.step(host.step())
        if host.steps % 97 == 0:
            save()
    assert len(saved) > 30
    for state, twin in saved:
        again, _, _ = new(values, twin)
        again.load_state_dict(json.loads(state))
        drive(again, twin)
        assert again.state.best == plain.state.best
        assert list(twin.mean_square) == list(other.mean_square)
        again.restore_best()
        assert twin.evaluate() == plain.state.best.loss


def test_states_from_before_there_was_a_best_one_still_load():
    session, host, _ = new(PAPER, keep_best=False)
    drive(session, host, 300)
    values = session.state_dict()
    del values["best"], values["state"]["settings"]["keep_best"]
    for name in ("best", "looks", "look_every"):
        del values["state"][name]
    again, _, _ = new(PAPER, host, keep_best=False)
    again.load_state_dict(values)
    drive(again, host)
    assert again.done and again.state.best is None


def test_a_longer_budget_looks_on_and_keeps_what_was_best():
    session, host, events = whole(HORIZON)
    best = session.state.best
    session.extend(3000)
    drive(session, host)
    later = [look.step for look in of_kind(events, Looked)][LOOKS:]
    assert later == list(range(2550, 3001, 150))
    assert session.state.best == min(of_kind(events, Looked), key=lambda look: look.loss)
    assert session.state.best.loss <= best.loss


def test_a_stretch_that_is_undone_does_not_undo_the_best():
    session, host, events = new(HORIZON)
    session.begin()
    while not session.done:
        loss = host.step()
        spoilt = not of_kind(events, Failed) and session.committed_steps == 1100
        session.step(math.nan if spoilt else loss)
    assert len(of_kind(events, Failed)) == 1
    assert session.state.best == min(of_kind(events, Looked), key=lambda look: look.loss)
    session.restore_best()
    assert host.evaluate() == session.state.best.loss


# With "auto": looks from what the search has left, and a run that has clearly overfitted ends with its best state


class Learning(Overfitting):
    """The validation loss falls with the training loss."""

    def evaluate(self):
        self.asked += 1
        return self.loss()


@pytest.mark.parametrize("total", [300, 600, 1000, 2400, 20_000])
@pytest.mark.parametrize("evaluate_cost", [0.0, 10 / 3, 40.0])
def test_looks_take_what_the_search_has_left_and_cost_it_no_more_than_five_of_them_are_worth(total, evaluate_cost):
    more = {"total_steps": total, "evaluate_cost": evaluate_cost}
    session, host, events = whole(AUTO, Learning(), **more)
    plain, other, without = whole(AUTO, Learning(), **more, keep_best=False)
    looks = of_kind(events, Looked)
    assert len(looks) == 0 or MIN_LOOKS <= len(looks) <= LOOKS
    assert (session.state.raw_steps + session.state.evaluations * evaluate_cost) / total <= 1.15 + 1e-9
    asked, alone = (len(of_kind(e, Probed)) + len(of_kind(e, Aborted)) for e in (events, without))
    if asked == alone:
        assert host.lrs == other.lrs and session.state.schedule == plain.state.schedule
    else:
        assert looks and asked - 1 >= 3  # the ramp is one of them
        assert (alone - asked - 1) * (0.02 * total + evaluate_cost) < MIN_LOOKS * evaluate_cost
    left = 0.15 * total - (plain.state.raw_steps - total) - plain.state.evaluations * evaluate_cost
    if left >= MIN_LOOKS * evaluate_cost:
        assert looks and asked == alone
    if looks:
        assert looks[-1].step == total
    assert fold(events) == session.state


@pytest.mark.parametrize("total", [1000, 1200, 1500, 2000, 3000, 10_000])
def test_from_a_thousand_steps_on_any_run_with_validation_is_looked_at(total):
    session, _, events = whole(AUTO, Learning(), total_steps=total, averaging=True)
    assert len(of_kind(events, Looked)) >= MIN_LOOKS
    assert session.state.raw_steps + session.state.evaluations * 10 / 3 <= 1.15 * total + 1e-9


def test_a_run_that_overfits_ends_with_its_best_state_and_the_journal_says_so():
    session, host, events = whole(AUTO)
    best = session.state.best
    assert best.step < 2400 and host.evaluate() == best.loss
    assert f"the run ends with the state of step {best.step}" in of_kind(events, Noted)[-1].message
    assert session.lr == session.state.segments[-1].lr_end


def test_a_run_that_does_not_ends_with_its_last_state():
    session, host, events = whole(AUTO, Learning())
    _, other, _ = whole(AUTO, Learning(), keep_best=False)
    assert list(host.mean_square) == list(other.mean_square)
    assert not any("the run ends with" in note.message for note in of_kind(events, Noted))
    assert session.state.best.step > 0.8 * 2400


def test_an_overfitting_run_can_be_extended_from_its_best_state():
    session, host, _ = whole(AUTO)
    best = session.state.best
    session.extend(3000)
    drive(session, host)
    assert session.done and session.committed_steps == 3000
    assert host.evaluate() <= best.loss


def test_without_validation_or_under_algorithm_1_it_does_nothing():
    for values in ({**PAPER, "keep_best": "auto"}, AUTO):
        config = Settings.make(**{"strategy": "paper", **values})
        host = Overfitting()
        validation = config.strategy == "paper"
        session = Session(host, config, strategies.get(config.strategy), validation=validation)
        drive(session, host)
        assert session.state.looks == () and session.state.best is None
        with pytest.raises(RuntimeError, match=r"no finite validation loss was seen so far .looked at never"):
            session.restore_best()
