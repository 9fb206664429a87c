"""Hand-tuned schedules with a linear warm-up of 5 % (OneCycle has its own): one number to tune, the peak.

torch's own schedulers where they exist.
"""

from __future__ import annotations

from collections.abc import Callable

from torch.optim import Optimizer
from torch.optim.lr_scheduler import CosineAnnealingLR, LambdaLR, LinearLR, LRScheduler, OneCycleLR, SequentialLR

WARMUP = 0.05
WSD_DECAY = 0.2


def constant(optimizer: Optimizer, peak: float, total: int) -> LRScheduler:
    """Warm-up, then one LR."""
    return _after_warmup(optimizer, peak, total, lambda steps: LambdaLR(optimizer, lambda step: 1.0))


def cosine(optimizer: Optimizer, peak: float, total: int) -> LRScheduler:
    """Warm-up, then half a cosine to 0."""
    return _after_warmup(optimizer, peak, total, lambda steps: CosineAnnealingLR(optimizer, steps))


def linear(optimizer: Optimizer, peak: float, total: int) -> LRScheduler:
    """Warm-up, then a straight line to 0."""
    return _after_warmup(optimizer, peak, total, lambda steps: LinearLR(optimizer, 1.0, 0.0, steps))


def wsd(optimizer: Optimizer, peak: float, total: int) -> LRScheduler:
    """Warm-up, stable, decay: constant until the last fifth, which falls linearly to 0."""

    def factor(steps: int) -> Callable[[int], float]:
        decay = max(1, round(WSD_DECAY * total))
        return lambda step: min(1.0, max(steps - step, 0) / decay)

    return _after_warmup(optimizer, peak, total, lambda steps: LambdaLR(optimizer, factor(steps)))


def onecycle(optimizer: Optimizer, peak: float, total: int) -> LRScheduler:
    """torch's OneCycleLR with its defaults, momentum left alone."""
    _set(optimizer, peak)
    return OneCycleLR(optimizer, peak, total_steps=total + 1, cycle_momentum=False)


SCHEDULES: dict[str, Callable[[Optimizer, float, int], LRScheduler]] = {
    "constant": constant,
    "cosine": cosine,
    "linear": linear,
    "wsd": wsd,
    "onecycle": onecycle,
}


def _after_warmup(optimizer: Optimizer, peak: float, total: int, then: Callable[[int], LRScheduler]) -> LRScheduler:
    _set(optimizer, peak)
    warm = max(1, round(WARMUP * total))
    parts: list[LRScheduler] = [LinearLR(optimizer, 1.0 / warm, 1.0, warm), then(total - warm)]
    return SequentialLR(optimizer, parts, [warm])


def _set(optimizer: Optimizer, lr: float) -> None:
    for group in optimizer.param_groups:
        group["lr"] = lr
        group.pop("initial_lr", None)
