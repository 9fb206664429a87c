"""What a method is: it trains a task's bundle its own way and says what that cost. The plain loop lives here."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from autolrs.bench.curve import Curve
from autolrs.bench.tasks import Bundle, Task


@dataclass(frozen=True)
class Run:
    """What one run is given: `lr` and `options` are what tuning chose, None and empty where nothing is tuned."""

    task: Task
    seed: int
    curve: Curve
    lr: float | None = None
    options: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Outcome:
    """What a run took.

    `raw_steps` counts all optimizer steps, those of a search included, and whatever else costs a gradient;
    `evaluations` the validation passes; `peak` is the highest LR it used (None if it has none); `settings` what to
    record about how it was set.
    """

    raw_steps: int
    evaluations: int
    peak: float | None
    settings: Mapping[str, Any] = field(default_factory=dict)


Train = Callable[[Bundle, Run], Outcome]


@dataclass(frozen=True)
class Method:
    """`tuned` methods need an LR from outside; `ours` are held against the others; `needs` is a package to install.

    `options` is a grid of further hyper-parameters to tune, and `lrs` gives the LRs to try where they are not the usual
    ones around the middle of the task's interval (see `bench.tuning`). `refuses` says why a task cannot be run.
    """

    name: str
    train: Train
    tuned: bool = False
    ours: bool = False
    needs: str | None = None
    extra: str = "bench"  # that brings what it needs
    options: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    lrs: Callable[[Task], tuple[float, ...]] | None = None
    refuses: Callable[[Task], str | None] = lambda task: None


def endless(loader: Iterable[Any]) -> Iterator[Any]:
    """Epoch after epoch."""
    while True:
        yield from loader


def backward(bundle: Bundle, optimizer: Optimizer, batch: Any) -> Tensor:
    """Gradients of a batch, clipped if the task says so; returns the loss."""
    optimizer.zero_grad()
    loss = bundle.loss(batch)
    loss.backward()
    if bundle.clip:
        nn.utils.clip_grad_norm_(bundle.model.parameters(), bundle.clip)
    return loss.detach()


def step(bundle: Bundle, optimizer: Optimizer, batch: Any) -> Tensor:
    """One training step; returns the loss before it."""
    loss = backward(bundle, optimizer, batch)
    optimizer.step()
    return loss


def train(
    bundle: Bundle,
    run: Run,
    optimizer: Optimizer,
    after: Callable[[int, Tensor], None] = lambda done, loss: None,
    first: int = 0,
    last: int | None = None,
) -> None:
    """Steps `first` + 1 to `last` (all of the task's) with `after(steps done, loss)` where a scheduler steps."""
    batches = endless(bundle.loader)
    for done in range(first + 1, (run.task.total_steps if last is None else last) + 1):
        bundle.advance(done - 1)
        lr = float(optimizer.param_groups[0]["lr"])
        loss = step(bundle, optimizer, next(batches))
        after(done, loss)
        run.curve.at(done, lr, loss)


@torch.no_grad()
def recalibrate(bundle: Bundle, batches: int = 20) -> list[tuple[Tensor, Tensor]]:
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
