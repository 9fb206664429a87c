"""Schedules fixed in advance: tuned ones, the cyclical ones, and the one that a task's own paper gives."""

from __future__ import annotations

import copy
from collections.abc import Callable

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from autolrs.bench.methods._method import Method, Outcome, Run, Train, endless, step, train
from autolrs.bench.tasks import Bundle, Task
from autolrs.pytorch.range_test import range_test
from autolrs.rivals import cyclical
from autolrs.rivals.schedules import SCHEDULES, Make, sgdr

RANGE_STEPS = 100


def scheduled(make: Make) -> Train:
    """The task's own optimizer under a schedule whose peak was tuned."""

    def run_it(bundle: Bundle, run: Run) -> Outcome:
        assert run.lr is not None  # the runner sees to it
        _follow(bundle, run, make(bundle.optimizer, run.lr, run.task.total_steps))
        return Outcome(run.task.total_steps, 0, run.lr)

    return run_it


def _restarts(bundle: Bundle, run: Run) -> Outcome:
    assert run.lr is not None
    _follow(bundle, run, sgdr(bundle.optimizer, run.lr, run.task.total_steps, int(run.options["cycles"])))
    return Outcome(run.task.total_steps, 0, run.lr)


def _cyclical(make: Callable[[Optimizer, tuple[float, float], int, int], LRScheduler]) -> Train:
    """Bounds by a range test, which is counted and undone; the number of cycles was tuned."""

    def run_it(bundle: Bundle, run: Run) -> Outcome:
        steps = max(8, min(RANGE_STEPS, run.task.total_steps // 4))
        batches = endless(copy.copy(bundle.loader))  # a copy: the training's count of epochs stays
        found = range_test(
            bundle.model, bundle.optimizer, lambda: step(bundle, bundle.optimizer, next(batches)).item(), steps=steps
        )
        cycles = int(run.options.get("cycles", 1))
        _follow(bundle, run, make(bundle.optimizer, found.interval, run.task.total_steps, cycles))
        bounds = {"lr_min": found.lr_min, "lr_max": found.lr_max}
        return Outcome(run.task.total_steps + len(found.losses), 0, found.lr_max, bounds)

    return run_it


def _hand_tuned(bundle: Bundle, run: Run) -> Outcome:
    make = run.task.hand_tuned
    assert make is not None
    scheduler = make(bundle.optimizer, run.task.total_steps)
    peak = max(group["initial_lr"] for group in bundle.optimizer.param_groups)
    _follow(bundle, run, scheduler)
    return Outcome(run.task.total_steps, 0, peak)


def _follow(bundle: Bundle, run: Run, scheduler: LRScheduler) -> None:
    train(bundle, run, bundle.optimizer, lambda done, loss: scheduler.step())


def _without_one(task: Task) -> str | None:
    return None if task.hand_tuned else f"task {task.name} comes with no hand-tuned schedule"


METHODS = (
    *(Method(name, scheduled(make), tuned=True) for name, make in SCHEDULES.items()),
    Method("sgdr", _restarts, tuned=True, options={"cycles": (2, 3, 4)}),
    *(
        Method(
            f"clr-{name.replace('_', '-')}",
            _cyclical(make),
            options={} if name == "1cycle" else {"cycles": (2, 4, 8)},
        )
        for name, make in cyclical.VARIANTS.items()
    ),
    Method("hand-tuned", _hand_tuned, refuses=_without_one),
)
