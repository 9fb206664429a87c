"""What is compared: each method trains a task's bundle its own way and says what that cost.

Tuned methods get their peak LR from `runner.tuned_lr`, on seeds that are not reported; the others get none.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from autolrs.bench.curve import Curve
from autolrs.bench.tasks import Bundle, Task
from autolrs.pytorch.auto import AutoLRS
from autolrs.pytorch.averaging import Averager
from autolrs.rivals.learning_rate_free import prodigy, schedule_free
from autolrs.rivals.schedules import SCHEDULES


@dataclass(frozen=True)
class Outcome:
    """What a run took: all optimizer steps, validation passes, and the peak LR it used (None if it has none)."""

    raw_steps: int
    evaluations: int
    peak: float | None


Train = Callable[[Bundle, Task, float | None, Curve], Outcome]


@dataclass(frozen=True)
class Method:
    """`tuned` methods need an LR from outside; `ours` are held against the others; `needs` is a package to install."""

    name: str
    train: Train
    tuned: bool = False
    ours: bool = False
    needs: str | None = None


def _endless(loader: Iterable[Any]) -> Iterator[Any]:
    """Epoch after epoch."""
    while True:
        yield from loader


def _step(bundle: Bundle, optimizer: Optimizer, batch: Any) -> torch.Tensor:
    """One training step; returns the loss before it."""
    optimizer.zero_grad()
    loss = bundle.loss(batch)
    loss.backward()
    if bundle.clip:
        nn.utils.clip_grad_norm_(bundle.model.parameters(), bundle.clip)
    optimizer.step()
    return loss.detach()


def _scheduled(name: str) -> Train:
    """The task's own optimizer under one of the hand-tuned schedules."""

    def train(bundle: Bundle, task: Task, lr: float | None, curve: Curve) -> Outcome:
        assert lr is not None  # `runner.run` sees to it
        scheduler = SCHEDULES[name](bundle.optimizer, lr, task.total_steps)
        batches = _endless(bundle.loader)
        for step in range(1, task.total_steps + 1):
            _step(bundle, bundle.optimizer, next(batches))
            scheduler.step()
            curve.at(step)
        return Outcome(task.total_steps, 0, lr)

    return train


def _replaced(make: Callable[[Bundle, Task, float | None], Any]) -> Train:
    """A method that replaces the optimizer. One with train and eval modes is measured, and left, in eval mode."""

    def train(bundle: Bundle, task: Task, lr: float | None, curve: Curve) -> Outcome:
        optimizer = make(bundle, task, lr)
        modes = hasattr(optimizer, "eval")
        batches = _endless(bundle.loader)
        measure = curve.measure

        def in_eval_mode() -> float:
            optimizer.eval()
            saved = _recalibrate(bundle)
            value = measure()
            for buffer, old in saved:
                buffer.copy_(old)
            optimizer.train()
            return value

        if modes:
            optimizer.train()
            curve.measure = in_eval_mode
        for step in range(1, task.total_steps + 1):
            _step(bundle, optimizer, next(batches))
            curve.at(step)
        if modes:
            optimizer.eval()
            _recalibrate(bundle)
        return Outcome(task.total_steps, 0, lr)

    return train


@torch.no_grad()
def _recalibrate(bundle: Bundle, batches: int = 20) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """BatchNorm's statistics for the weights now in the model, from training batches; returns what to put back."""
    norms = [m for m in bundle.model.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]
    saved = [(buffer, buffer.clone()) for norm in norms for buffer in norm.buffers()]
    if norms:
        momenta = [norm.momentum for norm in norms]
        for norm in norms:
            norm.reset_running_stats()
            norm.momentum = None
        bundle.model.train()
        for batch in islice(copy.copy(bundle.loader), batches):  # a copy: the training's count of epochs stays
            bundle.loss(batch)
        for norm, momentum in zip(norms, momenta, strict=True):
            norm.momentum = momentum
    return saved


def _autolrs(**options: Any) -> Train:
    """AutoLRS with these settings; one that depends on the task is a function of it."""

    def train(bundle: Bundle, task: Task, lr: float | None, curve: Curve) -> Outcome:
        given = {key: value(task) if callable(value) else value for key, value in options.items()}
        auto = AutoLRS(bundle.model, bundle.optimizer, total_steps=task.total_steps, evaluate=bundle.evaluate, **given)
        averager, measure = auto._averager, curve.measure
        if averager is not None:  # what a user who stopped here would take; at the end they are in the model already
            curve.measure = lambda: _averaged(averager, measure)
        for batch in auto.batches(bundle.loader):
            loss = _step(bundle, bundle.optimizer, batch)
            info = auto.step(loss)
            if not info.exploring:
                curve.at(info.committed_steps)
        peak = max((max(s.lr_start, s.lr_end) for s in auto.schedule.segments), default=None)
        return Outcome(auto.raw_steps, auto.session.state.evaluations, peak)

    return train


def _averaged(averager: Averager, measure: Callable[[], float]) -> float:
    """What `measure` gives with the averaged weights in the model."""
    with averager.averaged():
        return measure()


def _tau(task: Task) -> int:
    """The paper's first stage for a run this short; a tenth of it, the probe, needs 4 steps."""
    return max(40, task.total_steps // 40)


METHODS: dict[str, Method] = {
    method.name: method
    for method in (
        Method("horizon", _autolrs(), ours=True),
        Method("horizon-plain", _autolrs(averaging=False), ours=True),
        Method(
            "paper",
            _autolrs(
                strategy="paper", lr=lambda task: task.lr, stage_steps=_tau, max_stage_steps=lambda task: 8 * _tau(task)
            ),
            ours=True,
        ),
        *(Method(name, _scheduled(name), tuned=True) for name in SCHEDULES),
        Method(
            "schedule-free",
            _replaced(lambda b, t, lr: schedule_free(b.model, b.optimizer, lr, t.total_steps)),
            tuned=True,
            needs="schedulefree",
        ),
        Method(
            "schedule-free-default",
            _replaced(lambda b, t, lr: schedule_free(b.model, b.optimizer, None, t.total_steps)),
            needs="schedulefree",
        ),
        Method("prodigy", _replaced(lambda b, t, lr: prodigy(b.model, b.optimizer)), needs="prodigyopt"),
    )
}
