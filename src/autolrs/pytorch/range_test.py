"""The LR range test (Smith 2017) on its own: raise the LR, see where the loss falls, put everything back."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from autolrs.core.divergence import diverged
from autolrs.core.interval import conclude, ramp
from autolrs.core.settings import check_interval
from autolrs.pytorch.state import TorchHost, number


@dataclass(frozen=True)
class RangeTest:
    """The interval to search, and what it was read from. If the loss never fell it is a guess, as `note` says."""

    lr_min: float
    lr_max: float
    lrs: tuple[float, ...]
    losses: tuple[float, ...]
    note: str

    @property
    def interval(self) -> tuple[float, float]:
        """For `AutoLRS(lr=...)`."""
        return self.lr_min, self.lr_max


def range_test(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    data: Callable[[], Any] | Iterable[Any],
    loss_fn: Callable[[Any], Any] | None = None,
    *,
    lr: tuple[float, float] = (1e-7, 10.0),
    steps: int = 100,
) -> RangeTest:
    """Find the search interval; model, gradients, optimizer and random state are as before when it returns or raises.

    Args:
        data: a function that does one whole training step and returns its loss, or a loader of batches.
        loss_fn: with a loader, `batch -> loss`; this function then does zero_grad, backward and step.
        lr: from where to where the LR is raised.
        steps: how many steps that takes; it ends early once the loss explodes.
    """
    step = data if loss_fn is None else _stepper(optimizer, data, loss_fn)  # type: ignore[arg-type]
    if not callable(step):
        raise TypeError("`data` must be a function that does one training step, or a loader together with `loss_fn`")
    if steps < 8:
        raise ValueError(f"`steps` must be at least 8, got {steps}")
    host = TorchHost(model, optimizer)
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    gradients = [None if p.grad is None else p.grad.clone() for p in parameters]
    base = float(optimizer.param_groups[0]["lr"])
    token = host.snapshot()
    lrs: list[float] = []
    losses: list[float] = []
    try:
        for segment in ramp(steps, check_interval("lr", lr)):
            host.set_lr(segment.lr_start)
            losses.append(number(step(), "the loss"))
            lrs.append(segment.lr_start)
            if not math.isfinite(losses[-1]) or diverged(losses, 1):
                break
    finally:
        host.restore(token)
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.grad = gradient
    found = conclude(lrs, losses, base)
    return RangeTest(found.lr_min, found.lr_max, tuple(lrs), tuple(losses), found.note)


def _stepper(
    optimizer: torch.optim.Optimizer, loader: Iterable[Any], loss_fn: Callable[[Any], Any]
) -> Callable[[], float]:
    batches = _endless(loader)

    def step() -> float:
        loss = loss_fn(next(batches))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return float(loss.detach())

    return step


def _endless(loader: Iterable[Any]) -> Iterator[Any]:
    while True:
        empty = True
        for batch in loader:
            empty = False
            yield batch
        if empty:
            raise ValueError("the loader gave no batch: it is empty, or it cannot be iterated a second time")
