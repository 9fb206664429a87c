"""The suite that every adapter must pass: what a host may not get wrong, as small named checks over a `Harness`.

Run all with `host_conformance(make)`, or one test a check:
`@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)`. A check of what a harness does not offer
raises `unittest.SkipTest`. Equal losses and weights are equal to the bit. Harnesses may share a global random state: a
check is through with one before it makes the next.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Protocol
from unittest import SkipTest

import numpy as np

from autolrs.core import reference
from autolrs.core.schedule import Schedule
from autolrs.core.settings import Settings
from autolrs.core.strategies.paper import Paper
from autolrs.run.host import Host
from autolrs.run.session import Session

LOW, HIGH = 0.01, 0.05  # both train every small network


class Harness(Protocol):
    """A small training in the framework under test: the same weights, data and random numbers each time it is made.

    Optional, each checked where it exists: `overflow_step()`, a step that mixed precision skips; `accumulate(n)`, one
    optimizer step made of `n` batches; `counted() -> int`, the steps that the adapter has counted so far (both of the
    former need it); `tracked() -> arrays`, the state of what the user asked to have restored too, which steps change.
    """

    @property
    def host(self) -> Host:
        """The host under test, with a validation loss."""

    def step(self) -> float:
        """One optimizer step on the next batch; returns its loss before the step."""

    def rewind(self) -> None:
        """Put the data, and nothing else, back to the beginning."""

    def lrs(self) -> list[float]:
        """LR of each parameter group now."""

    def weights(self) -> Sequence[Any]:
        """All that is trained, and all that a forward pass changes, as arrays."""


Make = Callable[[], Harness]


def host_conformance(make: Make) -> None:
    """Run every check on fresh harnesses; the first that fails is an AssertionError that names it."""
    for check in CHECKS:
        try:
            check(make)
        except SkipTest:
            continue
        except Exception as error:
            raise AssertionError(f"{check.__name__}: {error or type(error).__name__}") from error


# Snapshots


def a_step_trains(make: Make) -> None:
    """Without this all other checks would pass on a host that does nothing."""
    harness = _started(make)
    before = _weights(harness)
    losses = _steps(harness, 4)
    _different(before, _weights(harness), "four steps changed no weight")
    assert len(set(losses)) > 1, f"the loss never changed: {losses}"


def two_harnesses_are_equal(make: Make) -> None:
    """What `make` returns must not depend on what was made before."""
    first, second = ((_weights(harness), _steps(harness, 3)) for harness in (_started(make) for _ in range(2)))
    _equal(first[0], second[0], "two fresh harnesses begin with different weights")
    assert first[1] == second[1], f"two fresh harnesses train differently: {first[1]} and {second[1]}"


def losses_after_a_restore_repeat(make: Make) -> None:
    """The next losses, not only the next one: momentum, buffers and random numbers are part of the state."""
    harness = _started(make)
    _steps(harness, 3)
    token = _snapshot(harness)
    expected = _steps(harness, 4), _weights(harness)
    _restore(harness, token)
    _same_run(harness, 4, expected, "after a restore")


def a_token_can_be_restored_many_times(make: Make) -> None:
    """Frameworks like to alias what they load: then the second restore brings back what the first run left."""
    harness = _started(make)
    _steps(harness, 2)
    token = _snapshot(harness)
    expected = _steps(harness, 3), _weights(harness)
    for count in range(1, 4):
        _restore(harness, token)
        _same_run(harness, 3, expected, f"after restore {count} of one token")


def restored_weights_are_those_of_the_snapshot(make: Make) -> None:
    """However many steps at whatever LR lie between."""
    harness = _started(make)
    _steps(harness, 2)
    token, before = _snapshot(harness), _weights(harness)
    _steps(harness, 5, HIGH)
    harness.host.restore(token)
    _equal(before, _weights(harness), "weights differ after a restore")


def two_snapshots_coexist(make: Make) -> None:
    """A kept probe's end state beside the stage's own."""
    harness = _started(make)
    first = _snapshot(harness)
    early = _steps(harness, 3), _weights(harness)
    second = _snapshot(harness)
    late = _steps(harness, 3), _weights(harness)
    _restore(harness, first)
    _same_run(harness, 3, early, "from the earlier of two snapshots")
    _restore(harness, second)
    _same_run(harness, 3, late, "from the later of two snapshots")


def released_memory_is_not_shared(make: Make) -> None:
    """A snapshot taken after a release may use its memory, but not that of a snapshot which is still needed."""
    harness = _started(make)
    gone, kept = _snapshot(harness), _snapshot(harness)
    expected = _steps(harness, 3), _weights(harness)
    harness.host.release(gone)
    newer = _snapshot(harness)
    later = _steps(harness, 3), _weights(harness)
    _restore(harness, kept)
    _same_run(harness, 3, expected, "from a snapshot that was kept while another was released")
    _restore(harness, newer)
    _same_run(harness, 3, later, "from a snapshot in released memory")


def the_beginning_can_be_restored(make: Make) -> None:
    """Optimizers make their state with the first step: a restore to the point before it must take that away again."""
    fresh = _started(make)
    expected = _steps(fresh, 4), _weights(fresh)
    harness = _started(make)
    token = _snapshot(harness)
    _steps(harness, 5, HIGH)
    _restore(harness, token)
    _same_run(harness, 4, expected, "after a restore to the beginning")


# The learning rate


def a_restore_brings_the_old_lr_back(make: Make) -> None:
    """The LR is part of the state; whoever wants another sets it afterwards."""
    harness = _started(make)
    token, before = _snapshot(harness), harness.lrs()
    harness.host.set_lr(HIGH)
    harness.host.restore(token)
    assert harness.lrs() == before, f"LRs were {before} at the snapshot and are {harness.lrs()} after its restore"


def the_first_step_after_a_restore_uses_the_new_lr(make: Make) -> None:
    """An LR that is set after a restore must not be undone by it."""
    fresh = _started(make, HIGH)
    expected = _steps(fresh, 1), _weights(fresh)
    harness = _started(make)
    token = _snapshot(harness)
    _steps(harness, 2)
    _restore(harness, token, HIGH)
    _same_run(harness, 1, expected, "at a new LR after a restore")


def every_step_uses_the_lr_that_was_set(make: Make) -> None:
    """A ramp sets it before each step."""
    constant = _started(make)
    _steps(constant, 3)
    ramped = _started(make)
    for lr in (LOW, HIGH, LOW):
        _steps(ramped, 1, lr)
    _different(_weights(constant), _weights(ramped), "an LR that was set between two steps had no effect")


def groups_keep_their_ratio(make: Make) -> None:
    """Every parameter group's LR moves with the first group's."""
    harness = make()
    before = harness.lrs()
    token = harness.host.snapshot()
    for lr in (LOW, HIGH):
        harness.host.set_lr(lr)
        _close(harness.lrs(), [lr * value / before[0] for value in before])
    harness.host.restore(token)
    harness.host.set_lr(LOW)
    _close(harness.lrs(), [LOW * value / before[0] for value in before])


# Around the steps


def evaluate_leaves_everything_as_it_is(make: Make) -> None:
    """Weights, buffers, mode, random numbers and LR: training goes on as if nobody had looked."""
    unwatched = _started(make)
    _steps(unwatched, 2)
    expected = _steps(unwatched, 3), _weights(unwatched)
    harness = _started(make)
    _steps(harness, 2)
    before, lrs = _weights(harness), harness.lrs()
    first, second = harness.host.evaluate(), harness.host.evaluate()
    assert first == second, f"two evaluations of the same weights gave {first} and {second}"
    assert harness.lrs() == lrs, "evaluate changed the LR"
    _equal(before, _weights(harness), "evaluate changed the weights")
    _same_run(harness, 3, expected, "after evaluate")


def a_run_follows_algorithm_1(make: Make) -> None:
    """A whole run through a `Session` commits what the paper's nested loops commit, and leaves the same weights."""
    settings = Settings(
        lr=(1e-3, 1e-1),
        total_steps=70,
        stage_steps=20,
        max_stage_steps=40,
        probe_fraction=0.25,
        n_probes=3,
        eval_every=2,
    )
    trainer = _Trainer(make())
    expected = reference.run(settings, trainer, validation=True)
    harness = make()
    session = Session(harness.host, settings, Paper(), validation=True)
    session.begin()
    while not session.done:
        session.step(harness.step())
    _same_schedule(expected, session.state.schedule)
    _equal(_weights(trainer.harness), _weights(harness), "a session and the reference end with different weights")


# Optional abilities


def skipped_steps_are_not_counted(make: Make) -> None:
    """A step that mixed precision calls off moved nothing."""
    harness = _started(make)
    overflow, counted = _ability(harness, "overflow_step"), _ability(harness, "counted")
    harness.step()
    before, number = _weights(harness), counted()
    overflow()
    _equal(before, _weights(harness), "a skipped step changed the weights")
    assert counted() == number, f"a skipped step was counted: {number} before, {counted()} after"
    harness.step()
    assert counted() == number + 1, f"the step after a skipped one was not counted: {counted()} after {number}"


def accumulated_batches_count_once(make: Make) -> None:
    """An optimizer step is a step, however many batches its gradient comes from; it is restored like any other."""
    harness = _started(make)
    accumulate, counted = _ability(harness, "accumulate"), _ability(harness, "counted")
    number = counted()
    accumulate(3)
    assert counted() == number + 1, f"three accumulated batches counted {counted() - number} times"
    token = _snapshot(harness)
    losses = [accumulate(2) for _ in range(2)]
    after = _weights(harness)
    _restore(harness, token)
    assert [accumulate(2) for _ in range(2)] == losses, "accumulated steps differ after a restore"
    _equal(after, _weights(harness), "accumulated steps end with different weights after a restore")


def tracked_objects_are_restored(make: Make) -> None:
    """What the user gave to be restored stands where it stood, also the second time."""
    harness = _started(make)
    tracked = _ability(harness, "tracked")
    _steps(harness, 2)
    token, before = _snapshot(harness), _arrays(tracked())
    for _ in range(2):
        _steps(harness, 3)
        _different(before, _arrays(tracked()), "steps do not change what is tracked: nothing to check")
        _restore(harness, token)
        _equal(before, _arrays(tracked()), "a tracked object differs after a restore")


CHECKS: tuple[Callable[[Make], None], ...] = (
    a_step_trains,
    two_harnesses_are_equal,
    losses_after_a_restore_repeat,
    a_token_can_be_restored_many_times,
    restored_weights_are_those_of_the_snapshot,
    two_snapshots_coexist,
    released_memory_is_not_shared,
    the_beginning_can_be_restored,
    a_restore_brings_the_old_lr_back,
    the_first_step_after_a_restore_uses_the_new_lr,
    every_step_uses_the_lr_that_was_set,
    groups_keep_their_ratio,
    evaluate_leaves_everything_as_it_is,
    a_run_follows_algorithm_1,
    skipped_steps_are_not_counted,
    accumulated_batches_count_once,
    tracked_objects_are_restored,
)


class _Trainer:
    """A harness as what `core.reference` drives."""

    def __init__(self, harness: Harness) -> None:
        self.harness = harness
        self.snapshot, self.restore = harness.host.snapshot, harness.host.restore
        self.set_lr, self.evaluate = harness.host.set_lr, harness.host.evaluate
        self.step = harness.step


def _started(make: Make, lr: float = LOW) -> Harness:
    harness = make()
    harness.host.set_lr(lr)
    return harness


def _steps(harness: Harness, count: int, lr: float | None = None) -> list[float]:
    if lr is not None:
        harness.host.set_lr(lr)
    losses = [float(harness.step()) for _ in range(count)]
    assert all(map(math.isfinite, losses)), f"the harness must train at {LOW} and {HIGH}, got losses {losses}"
    return losses


def _snapshot(harness: Harness) -> int:
    """With the data at their beginning, so that the same batches follow a restore."""
    harness.rewind()
    return harness.host.snapshot()


def _restore(harness: Harness, token: int, lr: float = LOW) -> None:
    harness.rewind()
    harness.host.restore(token)
    harness.host.set_lr(lr)


def _same_run(harness: Harness, count: int, expected: tuple[list[float], list[Any]], where: str) -> None:
    losses = _steps(harness, count)
    assert losses == expected[0], f"losses {where} are {losses}, not {expected[0]}"
    _equal(expected[1], _weights(harness), f"weights differ {where}")


def _weights(harness: Harness) -> list[Any]:
    return _arrays(harness.weights())


def _arrays(values: Sequence[Any]) -> list[Any]:
    return [np.array(value) for value in values]


def _equal(a: list[Any], b: list[Any], what: str) -> None:
    assert len(a) == len(b) and all(np.array_equal(x, y) for x, y in zip(a, b, strict=True)), what


def _different(a: list[Any], b: list[Any], what: str) -> None:
    assert len(a) != len(b) or not all(np.array_equal(x, y) for x, y in zip(a, b, strict=True)), what


def _close(lrs: list[float], expected: list[float]) -> None:
    near = len(lrs) == len(expected) and all(map(_near, lrs, expected))
    assert near, f"the groups' LRs are {lrs}, not {expected}"


def _near(a: float, b: float) -> bool:
    return math.isclose(a, b, rel_tol=1e-6)  # an LR may be held in single precision


def _same_schedule(expected: Schedule, found: Schedule) -> None:
    assert found == expected, f"the session committed {found.segments}, the reference {expected.segments}"


def _ability(harness: Harness, name: str) -> Callable[..., Any]:
    ability = getattr(harness, name, None)
    if ability is None:
        raise SkipTest(f"the harness has no `{name}`")
    found: Callable[..., Any] = ability
    return found
