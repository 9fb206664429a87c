"""The suite passes on good hosts, and each kind of broken host fails the checks that are there for it."""

from unittest import SkipTest

import numpy as np
import pytest

from autolrs.testing import SimulatedHost, host_conformance
from autolrs.testing.conformance import CHECKS


class Momentum(SimulatedHost):
    """A simulated training whose optimizer has a state that the first step makes, two groups and a running mean."""

    def __init__(self):
        super().__init__(seed=3)
        self.velocity = None
        self.ratio = 0.1
        self.lrs = [0.2, 0.02]
        self.mean = np.zeros(1)
        self.counted = 0

    def step(self):
        before = self.mean_square.copy()
        self.lr = self.lrs[0] + self.lrs[1]
        loss = super().step()
        moved = self.mean_square - before
        self.velocity = moved if self.velocity is None else 0.5 * self.velocity + moved
        self.mean_square[:] = np.maximum(before + self.velocity, 0.0)
        self.mean += loss
        self.counted += 1
        return loss

    def saved(self):
        velocity = None if self.velocity is None else self.velocity.copy()
        return self.mean_square.copy(), velocity, list(self.lrs), self.mean.copy()

    def put(self, saved):
        self.mean_square, self.lrs, self.mean = saved[0].copy(), list(saved[2]), saved[3].copy()
        self.velocity = None if saved[1] is None else saved[1].copy()

    def snapshot(self):
        self._next_token += 1
        self._tokens[self._next_token] = self.saved()
        return self._next_token

    def restore(self, token):
        self.put(self._tokens[token])

    def set_lr(self, lr):
        self.lrs = [lr, self.ratio * lr]


class Harness:
    """A `Momentum` (or a broken one) as the suite wants it."""

    def __init__(self, host):
        self.host = host

    def step(self):
        return self.host.step()

    def rewind(self):
        self.host.position = 0

    def lrs(self):
        return list(self.host.lrs)

    def weights(self):
        return [self.host.mean_square]

    def tracked(self):
        return [self.host.mean]

    def counted(self):
        return self.host.counted

    def overflow_step(self):
        self.host.position += 1

    def accumulate(self, n):
        self.host.position += n - 1
        return self.host.step()


class Plain(Harness):
    """`SimulatedHost` itself, with nothing optional."""

    tracked = counted = overflow_step = accumulate = None

    def __init__(self, host):
        super().__init__(host)
        host.set_lr(0.1)

    def lrs(self):
        return [self.host.lr]


def plain():
    return Plain(SimulatedHost(seed=1))


def full(kind=Momentum):
    return lambda: Harness(kind())


def failing(make):
    """Names of the checks that do not pass."""
    names = set()
    for check in CHECKS:
        try:
            check(make)
        except SkipTest:
            pass
        except AssertionError:
            names.add(check.__name__)
    return names


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("problem", ["quadratic", "power"])
def test_the_simulated_host_conforms(check, problem):
    check(lambda: Plain(SimulatedHost(seed=1, problem=problem)))


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_a_host_with_everything_conforms(check):
    check(full())


def test_the_whole_suite_runs_in_one_call():
    host_conformance(plain)
    host_conformance(full())


def test_checks_of_missing_abilities_are_skipped():
    skipped = []
    for check in CHECKS:
        try:
            check(plain)
        except SkipTest:
            skipped.append(check.__name__)
    assert skipped == [
        "skipped_steps_are_not_counted",
        "accumulated_batches_count_once",
        "tracked_objects_are_restored",
    ]


class AliasesItsSnapshot(Momentum):
    def saved(self):
        return self.mean_square, self.velocity, self.lrs, self.mean

    def step(self):  # in place, as frameworks train
        array = self.mean_square
        loss = super().step()
        array[:] = self.mean_square
        self.mean_square = array
        return loss


class AliasesWhatItRestores(AliasesItsSnapshot):
    def saved(self):
        return Momentum.saved(self)

    def put(self, saved):
        self.mean_square, self.velocity, self.lrs, self.mean = saved


class RestoresTheLrAtTheNextStep(Momentum):
    late = None

    def restore(self, token):
        super().restore(token)
        self.late = self._tokens[token][2]

    def step(self):
        if self.late is not None:
            self.lrs, self.late = list(self.late), None
        return super().step()


class ForgetsTheOptimizer(Momentum):
    def put(self, saved):
        velocity = self.velocity
        super().put(saved)
        self.velocity = velocity


class EmptiesTheOptimizer(Momentum):
    def put(self, saved):
        super().put(saved)
        self.velocity = None


class KeepsStateFromAfterTheBeginning(Momentum):
    def put(self, saved):
        velocity = self.velocity
        super().put(saved)
        self.velocity = velocity if saved[1] is None else self.velocity


class HasOneSlot(Momentum):
    def snapshot(self):
        token = super().snapshot()
        self._tokens = {key: self._tokens[token] for key in self._tokens}
        return token


class LeavesTheLrOnRestore(Momentum):
    def put(self, saved):
        lrs = self.lrs
        super().put(saved)
        self.lrs = lrs


class FlattensItsGroups(Momentum):
    def set_lr(self, lr):
        self.lrs = [lr, lr]


class IgnoresTheLr(Momentum):
    def set_lr(self, lr):
        pass


class EvaluatesOnTheTrainingState(Momentum):
    def evaluate(self):
        self.mean_square *= 0.99
        return super().evaluate()


class ForgetsWhatIsTracked(Momentum):
    def put(self, saved):
        mean = self.mean
        super().put(saved)
        self.mean = mean


class DrawsFromOutside(Momentum):
    dice = np.random.default_rng(0)  # shared by all hosts, and saved by none

    def step(self):
        loss = super().step()
        self.mean_square *= 1 + 0.01 * self.dice.random()
        return loss


class DoesNothing(Momentum):
    def step(self):
        return 1.0


@pytest.mark.parametrize(
    ("kind", "checks"),
    [
        (AliasesItsSnapshot, {"losses_after_a_restore_repeat", "restored_weights_are_those_of_the_snapshot"}),
        (AliasesWhatItRestores, {"a_token_can_be_restored_many_times", "tracked_objects_are_restored"}),
        (RestoresTheLrAtTheNextStep, {"the_first_step_after_a_restore_uses_the_new_lr"}),
        (DrawsFromOutside, {"a_run_follows_algorithm_1", "losses_after_a_restore_repeat"}),
        (ForgetsTheOptimizer, {"losses_after_a_restore_repeat", "the_beginning_can_be_restored"}),
        (EmptiesTheOptimizer, {"losses_after_a_restore_repeat"}),
        (KeepsStateFromAfterTheBeginning, {"the_beginning_can_be_restored"}),
        (HasOneSlot, {"two_snapshots_coexist", "released_memory_is_not_shared"}),
        (LeavesTheLrOnRestore, {"a_restore_brings_the_old_lr_back"}),
        (FlattensItsGroups, {"groups_keep_their_ratio"}),
        (IgnoresTheLr, {"every_step_uses_the_lr_that_was_set", "groups_keep_their_ratio"}),
        (EvaluatesOnTheTrainingState, {"evaluate_leaves_everything_as_it_is"}),
        (ForgetsWhatIsTracked, {"tracked_objects_are_restored"}),
        (DoesNothing, {"a_step_trains"}),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_broken_host_fails_the_checks_made_for_it(kind, checks):
    assert checks <= failing(full(kind))


def test_the_failing_check_is_named():
    with pytest.raises(AssertionError, match="groups_keep_their_ratio: the groups' LRs are"):
        host_conformance(full(FlattensItsGroups))


@pytest.mark.parametrize(
    ("name", "broken", "check"),
    [
        ("overflow_step", lambda harness: harness.step(), "skipped_steps_are_not_counted"),
        ("accumulate", lambda harness, n: [harness.step() for _ in range(n)][-1], "accumulated_batches_count_once"),
    ],
)
def test_a_miscount_fails(name, broken, check):
    kind = type("Miscounts", (Harness,), {name: broken})
    assert check in failing(lambda: kind(Momentum()))


def test_a_harness_that_differs_each_time_fails():
    made = []

    def make():
        made.append(None)
        harness = full()()
        harness.host.mean_square *= len(made)
        return harness

    assert "two_harnesses_are_equal" in failing(make)
