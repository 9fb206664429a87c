"""What is compared: each method trains a task's bundle its own way and says what that cost.

Tuned methods get their peak LR from `runner.tuned_lr`, on seeds that are not reported; the others get none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from autolrs.bench.curve import Curve
from autolrs.bench.tasks import Bundle, Task
from autolrs.pytorch.auto import AutoLRS
from autolrs.rivals.learning_rate_free import prodigy, schedule_free
from autolrs.rivals.schedules import SCHEDULES


@dataclass(frozen=True)
class Outcome:
    """What a run took: all steps, validation passes, and the peak LR it used (None if it has none)."""

    raw_steps: int
    evaluations: int
    peak: float | None
    note: str = ""


Train = Callable[[Bundle, Task, "float | None", Curve], Outcome]


@dataclass(frozen=True)
class Method:
    """`tuned` methods need an LR from outside; `ours` are held against the others."""

    name: str
    train: Train
    tuned: bool = False
    ours: bool = False


def _endless(loader: Any) -> Iterator[Any]:
    while True:
        yield from loader


def _step(bundle: Bundle, optimizer: Any, batch: Any) -> torch.Tensor:
    optimizer.zero_grad()
    loss = bundle.loss(batch)
    loss.backward()
    if bundle.clip:
        nn.utils.clip_grad_norm_(bundle.model.parameters(), bundle.clip)
    optimizer.step()
    return loss.detach()


def _scheduled(name: str) -> Train:
    def train(bundle: Bundle, task: Task, lr: float | None, curve: Curve) -> Outcome:
        assert lr is not None
        scheduler = SCHEDULES[name](bundle.optimizer, lr, task.total_steps)
        batches = _endless(bundle.loader)
        for step in range(1, task.total_steps + 1):
            _step(bundle, bundle.optimizer, next(batches))
            scheduler.step()
            curve.at(step)
        return Outcome(task.total_steps, 0, lr)

    return train


def _replaced(make: Callable[[Bundle, Task, float | None], Any]) -> Train:
    """A method that replaces the optimizer, one with train and eval modes perhaps."""

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
        epoch = getattr(bundle.loader, "epoch", None)
        for _, batch in zip(range(batches), bundle.loader, strict=False):
            bundle.loss(batch)
        if epoch is not None:
            bundle.loader.epoch = epoch  # type: ignore[attr-defined]
        for norm, momentum in zip(norms, momenta, strict=True):
            norm.momentum = momentum
    return saved


def _autolrs(**options: Any) -> Train:
    def train(bundle: Bundle, task: Task, lr: float | None, curve: Curve) -> Outcome:
        given = {key: value(task) if callable(value) else value for key, value in options.items()}
        auto = AutoLRS(bundle.model, bundle.optimizer, total_steps=task.total_steps, evaluate=bundle.evaluate, **given)
        averager, measure = auto._averager, curve.measure

        def of_averaged_weights() -> float:
            assert averager is not None
            averager.exchange()
            value = measure()
            averager.exchange()
            return value

        if averager is not None:  # what a user who stopped here would take; at the end they are in the model already
            curve.measure = lambda: measure() if auto.done else of_averaged_weights()
        for batch in auto.batches(bundle.loader):
            loss = _step(bundle, bundle.optimizer, batch)
            info = auto.step(loss)
            if not info.exploring:
                curve.at(info.committed_steps)
        peak = max(max(s.lr_start, s.lr_end) for s in auto.schedule.segments)
        return Outcome(auto.raw_steps, auto.session.state.evaluations, peak)

    return train


def _tau(task: Task) -> int:
    return max(40, task.total_steps // 40)


METHODS: dict[str, Method] = {
    method.name: method
    for method in (
        Method("horizon", _autolrs(), ours=True),
        Method("horizon-averaged", _autolrs(averaging=True), ours=True),
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
        ),
        Method(
            "schedule-free-default",
            _replaced(lambda b, t, lr: schedule_free(b.model, b.optimizer, None, t.total_steps)),
        ),
        Method("prodigy", _replaced(lambda b, t, lr: prodigy(b.model, b.optimizer))),
    )
}
