"""Optimizers that promise to need no schedule or no LR, used in place of a task's own.

Schedule-Free, Prodigy and D-Adaptation come from their authors' packages (extra `bench`), imported when asked for.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

WARMUP = 0.05  # of the run, as the hand-tuned schedules have; the package's default is none


def schedule_free(model: nn.Module, like: Optimizer, lr: float | None, total: int) -> Any:
    """Schedule-Free SGD or AdamW, as `like` is, for `total` steps; `lr` None is the package's default."""
    import schedulefree

    kind = schedulefree.SGDScheduleFree if isinstance(like, torch.optim.SGD) else schedulefree.AdamWScheduleFree
    options = {} if lr is None else {"lr": lr}
    decay, warmup = like.param_groups[0]["weight_decay"], max(1, round(WARMUP * total))
    return kind(model.parameters(), weight_decay=decay, warmup_steps=warmup, **options)


def prodigy(model: nn.Module, like: Optimizer) -> Any:
    """Prodigy at its default LR of 1."""
    import prodigyopt

    return prodigyopt.Prodigy(model.parameters(), weight_decay=like.param_groups[0]["weight_decay"])


def d_adaptation(model: nn.Module, like: Optimizer) -> Any:
    """D-Adaptation at its default LR of 1: DAdaptSGD with the momentum of `like`, or DAdaptAdam."""
    import dadaptation

    group = like.param_groups[0]
    if isinstance(like, torch.optim.SGD):
        return dadaptation.DAdaptSGD(model.parameters(), momentum=group["momentum"], weight_decay=group["weight_decay"])
    decoupled = isinstance(like, torch.optim.AdamW)  # prints a line if so, even where there is no decay
    return dadaptation.DAdaptAdam(
        model.parameters(),
        betas=group["betas"],
        eps=group["eps"],
        weight_decay=group["weight_decay"],
        decouple=decoupled and group["weight_decay"] > 0,
    )
