"""Cyclical learning rates (Smith 2017, 2018) between two bounds: the three variants that the paper compares with.

The bounds come from an LR range test, `autolrs.pytorch.range_test`; momentum is left alone.
"""

from __future__ import annotations

from torch.optim import Optimizer
from torch.optim.lr_scheduler import CyclicLR, LRScheduler, OneCycleLR

from autolrs.rivals.schedules import set_lr

EXP_RANGE_END = 0.1  # share of the amplitude that exp_range has at the end of the run


def triangular2(optimizer: Optimizer, bounds: tuple[float, float], total: int, cycles: int) -> LRScheduler:
    """`cycles` triangles between the bounds, each half as high as the one before."""
    return _cyclic(optimizer, bounds, total, cycles, mode="triangular2")


def exp_range(optimizer: Optimizer, bounds: tuple[float, float], total: int, cycles: int) -> LRScheduler:
    """`cycles` triangles whose height shrinks exponentially, step by step."""
    return _cyclic(optimizer, bounds, total, cycles, mode="exp_range", gamma=EXP_RANGE_END ** (1 / total))


def one_triangle(optimizer: Optimizer, bounds: tuple[float, float], total: int, cycles: int = 1) -> LRScheduler:
    """1cycle as printed: straight up, straight down, then a last stretch to far below the lower bound."""
    low, high = bounds
    set_lr(optimizer, high)
    return OneCycleLR(
        optimizer,
        high,
        total_steps=total + 1,
        pct_start=0.45,
        anneal_strategy="linear",
        cycle_momentum=False,
        div_factor=high / low,
        three_phase=True,
    )


VARIANTS = {"triangular2": triangular2, "exp_range": exp_range, "1cycle": one_triangle}


def _cyclic(
    optimizer: Optimizer, bounds: tuple[float, float], total: int, cycles: int, mode: str, gamma: float = 1.0
) -> LRScheduler:
    set_lr(optimizer, bounds[0])
    half = max(1, round(total / (2 * cycles)))
    return CyclicLR(optimizer, *bounds, step_size_up=half, mode=mode, gamma=gamma, cycle_momentum=False)  # type: ignore[arg-type]
