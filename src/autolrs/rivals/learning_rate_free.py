"""Optimizers that promise to need no schedule: Schedule-Free and Prodigy, from their packages, in place of a task's own optimizer."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

SCHEDULE_FREE_LR = {"adam": 0.0025, "sgd": 1.0}  # the package's own defaults


def schedule_free(model: nn.Module, like: Optimizer, lr: float | None, total: int) -> Any:
    """Schedule-Free SGD or AdamW, whichever the task's optimizer resembles, with 5 % warm-up; `lr` None is the package's default."""
    import schedulefree

    group = like.param_groups[0]
    options: dict[str, Any] = {"weight_decay": group["weight_decay"], "warmup_steps": max(1, round(0.05 * total))}
    if isinstance(like, torch.optim.SGD):
        return schedulefree.SGDScheduleFree(model.parameters(), lr=lr or SCHEDULE_FREE_LR["sgd"], **options)
    return schedulefree.AdamWScheduleFree(model.parameters(), lr=lr or SCHEDULE_FREE_LR["adam"], **options)


def prodigy(model: nn.Module, like: Optimizer) -> Any:
    """Prodigy at its default LR of 1."""
    import prodigyopt

    return prodigyopt.Prodigy(model.parameters(), weight_decay=like.param_groups[0]["weight_decay"])
