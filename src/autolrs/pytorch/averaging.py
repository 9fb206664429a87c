"""A running average of the weights for any optimizer: what a decay to 0 does at the end, to be had at any time.

The average covers roughly the last tenth of the steps so far (polynomial weights), so it forgets the beginning as the
run goes on. Buffers such as BatchNorm's statistics are averaged with the weights they belong to.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn

SHARPNESS = 20.0  # the average's mean age is 1 / (SHARPNESS + 1) of the steps so far
UPDATES = 1000  # in a run: often enough to average, seldom enough to cost nothing


class Averager:
    """Averages of a model's parameters and buffers."""

    def __init__(self, model: nn.Module, total_steps: int | None) -> None:
        self.every = max(1, (total_steps or 0) // UPDATES)
        self._model, self._count = model, 0
        self._averages: dict[str, Tensor] = {}

    @torch.no_grad()
    def update(self) -> None:
        """Take the model's present weights into the average; whole numbers such as batch counters are copied."""
        weight = min(1.0, SHARPNESS / (self._count + 1))
        self._count += 1
        averages, currents = [], []
        for path, current in _named(self._model):
            average = self._averages.get(path)
            if average is None or average.shape != current.shape or not current.is_floating_point():
                self._averages[path] = current.detach().clone()
            else:
                averages.append(average)
                currents.append(current.detach())
        if averages:
            torch._foreach_lerp_(averages, currents, weight)

    @torch.no_grad()
    def exchange(self) -> None:
        """Swap the averaged and the present weights; calling it again undoes it."""
        for path, current in _named(self._model):
            average = self._averages[path]
            self._averages[path] = current.detach().clone()
            current.copy_(average)

    def model(self) -> nn.Module:
        """A copy of the model with averaged weights."""
        if not self._count:
            raise RuntimeError("no step was committed yet: there is no average")
        self.exchange()
        try:
            return copy.deepcopy(getattr(self._model, "_orig_mod", self._model))
        finally:
            self.exchange()

    def state_dict(self) -> dict[str, Any]:
        """Plain values and copies of the averages."""
        return {"count": self._count, "averages": {path: tensor.clone() for path, tensor in self._averages.items()}}

    def load_state_dict(self, values: dict[str, Any]) -> None:
        """Go on from `state_dict`."""
        devices = {path: tensor.device for path, tensor in _named(self._model)}
        self._count = values["count"]
        self._averages = {path: tensor.to(devices.get(path), copy=True) for path, tensor in values["averages"].items()}


def _named(model: nn.Module) -> list[tuple[str, Tensor]]:
    """Parameters and buffers, each once."""
    return [*model.named_parameters(), *model.named_buffers()]
