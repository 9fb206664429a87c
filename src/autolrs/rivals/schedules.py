"""Schedules fixed in advance, with one number to tune, the peak; torch's own schedulers where they exist.

A linear warm-up of 5 % precedes all but OneCycle, which has its own, and those whose authors chose another length.
Cyclical schedules that take a pair of bounds are in `cyclical.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch.optim import Optimizer
from torch.optim.lr_scheduler import (
    CosineAnnealingLR,
    CosineAnnealingWarmRestarts,
    ExponentialLR,
    LambdaLR,
    LinearLR,
    LRScheduler,
    OneCycleLR,
    SequentialLR,
)

WARMUP = 0.05
WSD_DECAY = 0.2
EXPONENTIAL_END = 0.01  # share of the peak at which the exponential decay ends

Make = Callable[[Optimizer, float, int], LRScheduler]


def constant(optimizer: Optimizer, peak: float, total: int) -> LRScheduler:
    """Warm-up, then one LR."""
    return after_warmup(optimizer, peak, total, lambda steps: LambdaLR(optimizer, lambda step: 1.0))


def cosine(optimizer: Optimizer, peak: float, total: int, end: float = 0.0) -> LRScheduler:
    """Warm-up, then half a cosine to `end` times the peak."""
    return after_warmup(optimizer, peak, total, lambda steps: CosineAnnealingLR(optimizer, steps, eta_min=end * peak))


def cosine_to_tenth(optimizer: Optimizer, peak: float, total: int) -> LRScheduler:
    """Warm-up, then half a cosine to 10 % of the peak."""
    return cosine(optimizer, peak, total, 0.1)


def linear(optimizer: Optimizer, peak: float, total: int, warmup: float = WARMUP) -> LRScheduler:
    """Warm-up, then a straight line to 0: BERT's schedule, whose own warm-up is 1 %."""
    return after_warmup(optimizer, peak, total, lambda steps: LinearLR(optimizer, 1.0, 0.0, steps), warmup)


def wsd(optimizer: Optimizer, peak: float, total: int) -> LRScheduler:
    """Warm-up, stable, decay: constant until the last fifth, which falls linearly to 0."""

    def factor(steps: int) -> Callable[[int], float]:
        decay = max(1, round(WSD_DECAY * total))
        return lambda step: min(1.0, max(steps - step, 0) / decay)

    return after_warmup(optimizer, peak, total, lambda steps: LambdaLR(optimizer, factor(steps)))


def onecycle(optimizer: Optimizer, peak: float, total: int) -> LRScheduler:
    """torch's OneCycleLR with its defaults, momentum left alone."""
    set_lr(optimizer, peak)
    return OneCycleLR(optimizer, peak, total_steps=total + 1, cycle_momentum=False)


def step_decay(
    optimizer: Optimizer,
    peak: float,
    total: int,
    milestones: Sequence[float] = (30 / 90, 60 / 90, 80 / 90),
    factor: float = 0.1,
    warmup: float = 5 / 90,
) -> LRScheduler:
    """Multiplied by `factor` at each milestone (shares of the run): as printed, ResNet-50's on ImageNet in 90 epochs.

    `warmup` 0 begins at the peak, as the hand-tuned schedules for CIFAR do.
    """
    steps = [round(share * total) for share in milestones]
    if not warmup:
        set_lr(optimizer, peak)
        return LambdaLR(optimizer, lambda step: factor ** sum(step >= at for at in steps))
    warm = _warm(total, warmup)
    return after_warmup(
        optimizer,
        peak,
        total,
        lambda left: LambdaLR(optimizer, lambda step: factor ** sum(step + warm >= at for at in steps)),
        warmup,
    )


def inverse_sqrt(optimizer: Optimizer, peak: float, total: int, warmup: float = 0.04) -> LRScheduler:
    """Warm-up, then proportional to 1 / sqrt(t): the Transformer's, 4000 of 100,000 steps of warm-up."""
    warm = _warm(total, warmup)
    return after_warmup(
        optimizer, peak, total, lambda steps: LambdaLR(optimizer, lambda step: (warm / (warm + step)) ** 0.5), warmup
    )


def exponential(optimizer: Optimizer, peak: float, total: int) -> LRScheduler:
    """Warm-up, then the same factor every step, down to 1 % of the peak."""
    return after_warmup(
        optimizer, peak, total, lambda steps: ExponentialLR(optimizer, EXPONENTIAL_END ** (1 / max(1, steps)))
    )


def sgdr(optimizer: Optimizer, peak: float, total: int, cycles: int = 3) -> LRScheduler:
    """Warm restarts: `cycles` half cosines to 0, each twice as long as the one before."""
    set_lr(optimizer, peak)
    first = -(-total // (2**cycles - 1))  # rounded up: the last cycle must not begin again before the end
    return CosineAnnealingWarmRestarts(optimizer, first, T_mult=2)


SCHEDULES: dict[str, Make] = {
    "constant": constant,
    "cosine": cosine,
    "linear": linear,
    "wsd": wsd,
    "onecycle": onecycle,
    "cosine-tenth": cosine_to_tenth,
    "step": step_decay,
    "inverse-sqrt": inverse_sqrt,
    "exponential": exponential,
}


def after_warmup(
    optimizer: Optimizer, peak: float, total: int, then: Callable[[int], LRScheduler], warmup: float = WARMUP
) -> LRScheduler:
    """A linear rise to `peak` over the share `warmup` of the run, then `then(steps left)`."""
    set_lr(optimizer, peak)
    warm = _warm(total, warmup)
    parts: list[LRScheduler] = [LinearLR(optimizer, 1.0 / warm, 1.0, warm), then(total - warm)]
    return SequentialLR(optimizer, parts, [warm])


def set_lr(optimizer: Optimizer, lr: float) -> None:
    """One LR for all groups, and no memory of a scheduler before."""
    for group in optimizer.param_groups:
        group["lr"] = lr
        group.pop("initial_lr", None)


def _warm(total: int, warmup: float) -> int:
    return max(1, round(warmup * total))
