"""A running average of the weights for any optimizer: what a decay to 0 does at the end, available at any time.

The average covers roughly the last tenth of the steps so far (polynomial weights), so it forgets the beginning as the run goes on. Buffers such as BatchNorm's
statistics are averaged with the weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel

SHARPNESS = 10.0  # the average's mean age is 1 / (SHARPNESS + 1) of the steps so far
UPDATES = 1000  # updates in a run: often enough to average, seldom enough to cost nothing


class Averager:
    """Keeps `module`, a copy of `model` with averaged weights, up to date."""

    def __init__(self, model: nn.Module, total_steps: int | None) -> None:
        self.every = max(1, (total_steps or 0) // UPDATES)
        self.module = AveragedModel(getattr(model, "_orig_mod", model), multi_avg_fn=_polynomial, use_buffers=True)
        self._model = getattr(model, "_orig_mod", model)

    def update(self) -> None:
        """Take the model's present weights into the average."""
        self.module.update_parameters(self._model)

    @torch.no_grad()
    def hand_over(self) -> None:
        """Copy the averaged weights and buffers into the model."""
        for own, averaged in zip(_all(self._model), _all(self.module.module), strict=True):
            own.copy_(averaged)


def _all(module: nn.Module) -> list[Tensor]:
    return [*module.parameters(), *module.buffers()]


@torch.no_grad()
def _polynomial(averaged: Sequence[Any], current: Sequence[Any], count: Any) -> None:
    """averaged += (current - averaged) * min(1, sharpness / n); whole numbers such as batch counters are copied."""
    weight = min(1.0, SHARPNESS / (int(count) + 1))
    floats = [(a, c) for a, c in zip(averaged, current, strict=True) if a.is_floating_point()]
    torch._foreach_lerp_([a for a, _ in floats], [c for _, c in floats], weight)
    for a, c in zip(averaged, current, strict=True):
        if not a.is_floating_point():
            a.copy_(c)
