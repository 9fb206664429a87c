"""Weight averaging inside the training, for any torch optimizer; what it is: `core/averaging.py`.

Buffers such as BatchNorm's statistics stay those of y.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from autolrs.core.averaging import PLAIN_SHARPNESS, SHARPNESS, moves, share, weight
from autolrs.pytorch.state import local, reshard, unwrapped

NAME = "(averaging)"  # among the tracked objects; none that a user can give

_KNOWN = (  # whose momentum is an average of past steps and nothing else
    torch.optim.SGD,
    torch.optim.RMSprop,
    torch.optim.Adam,
    torch.optim.AdamW,
    torch.optim.NAdam,
    torch.optim.RAdam,
    torch.optim.Adamax,
)


class Averager:
    """x and v = z - x for an optimizer's parameters; host snapshots keep them with the rest of the training."""

    def __init__(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        self._model, self._optimizer = unwrapped(model), optimizer
        self._momenta: list[float] = []  # per group, as the user set them; 0 in a plain average
        self._steps = 0
        self._x: list[Tensor] = []
        self._v: list[Tensor] = []
        self._aside: list[Tensor] = []  # y, while the model holds x

    @property
    def begun(self) -> bool:
        """Whether there is an average."""
        return self._steps > 0

    @torch.no_grad()
    def update(self) -> None:
        """After an optimizer step from y to y': move z by it, take z into x, and put the model at the new y."""
        groups, parameters = self._optimizer.param_groups, self._parameters()
        if len(self._x) < len(parameters):
            self._begin(parameters)
        start = 0
        for group, momentum in zip(groups, self._momenta, strict=True):
            part = slice(start, start + len(group["params"]))
            start = part.stop
            y, x, v = parameters[part], self._x[part], self._v[part]
            if not y:  # the Trainer has such groups where no parameter is decayed
                continue
            if not momentum:
                # Beside groups whose momentum is shared, all of x is one average of the same steps.
                c = weight(self._steps, SHARPNESS if any(self._momenta) else PLAIN_SHARPNESS)
                torch._foreach_lerp_(x, [_wide(p) for p in y], c)
                continue
            by = moves(self._steps, momentum, accumulates="momentum" in group)
            torch._foreach_sub_(y, x)
            torch._foreach_mul_(v, by.keep)
            torch._foreach_add_(v, y, alpha=by.scale)
            torch._foreach_add_(x, v, alpha=by.c)
            torch._foreach_copy_(y, x)
            torch._foreach_add_(y, v, alpha=by.out)
        self._steps += 1

    @contextmanager
    def averaged(self) -> Iterator[None]:
        """The model holds x inside, and what it held before after it."""
        if not self.begun or self._aside:
            yield
            return
        self._aside = self.trained_at()
        self._put(self._x)
        try:
            yield
        finally:
            self._put(self._aside)
            self._aside = []

    def finish(self, *, average: bool) -> None:
        """Leave x in the model (or y) and give the momentum back. Steps after it begin a new average."""
        if average:
            self._put(self._x)
        for group, momentum in zip(self._optimizer.param_groups, self._momenta, strict=False):
            if momentum:
                _set_momentum(group, momentum)
        self._steps, self._momenta, self._x, self._v = 0, [], [], []

    def model(self) -> nn.Module:
        """A copy of the model with averaged weights."""
        with self.averaged():
            return copy.deepcopy(getattr(self._model, "_orig_mod", self._model))

    def trained_at(self) -> list[Tensor]:
        """A copy of y, to be kept beside a checkpoint of the model that was made inside `averaged`."""
        return self._aside or ([p.detach().clone() for p in self._parameters()] if self.begun else [])

    def put_trained_at(self, values: list[Tensor]) -> None:
        """Put y back where a checkpoint has left x."""
        self._put(values)

    def state_dict(self) -> dict[str, Any]:
        """The number of steps, the momenta that were shared, and the live tensors."""
        return {
            "steps": self._steps,
            "momenta": self._momenta,
            "x": self._x,
            "v": self._v,
        }

    def load_state_dict(self, values: dict[str, Any]) -> None:
        """Go on from `state_dict`; its tensors are taken over."""
        devices = [p.device for p in self._parameters()]
        self._steps, self._momenta = values["steps"], list(values["momenta"])
        self._x, self._v = ([t.to(d) for t, d in zip(values[k], devices, strict=False)] for k in ("x", "v"))

    def _begin(self, parameters: list[Tensor]) -> None:
        """The first step, or groups that were added: z = x = y', and from the next step on momentum is shared."""
        known = isinstance(self._optimizer, _KNOWN)
        for group in self._optimizer.param_groups[len(self._momenta) :]:
            momentum = _momentum(group) if known else 0.0
            self._momenta.append(momentum)
            if momentum:
                _set_momentum(group, share(momentum))
        self._x += [_wide(p).clone() for p in parameters[len(self._x) :]]
        self._v += [torch.zeros_like(x) for x in self._x[len(self._v) :]]

    def _parameters(self) -> list[Tensor]:
        """As this rank holds them: its shards of distributed ones."""
        return [local(p) for group in self._optimizer.param_groups for p in group["params"]]

    @torch.no_grad()
    def _put(self, values: list[Tensor]) -> None:
        """Copy `values` into the parameters; those without one, new since the last step, stay."""
        if values:
            torch._foreach_copy_(self._parameters()[: len(values)], values)
            reshard(self._model)  # or the next forward pass may see the weights that FSDP gathered before


def _momentum(group: dict[str, Any]) -> float:
    momentum = group["betas"][0] if "betas" in group else group["momentum"]
    return 0.0 if isinstance(momentum, Tensor) else float(momentum)  # a tensor is part of a compiled step: left alone


def _set_momentum(group: dict[str, Any], momentum: float) -> None:
    if "betas" in group:
        group["betas"] = (momentum, *group["betas"][1:])
    else:
        group["momentum"] = momentum


def _wide(tensor: Tensor) -> Tensor:
    """The tensor, in single precision if it has less: an average moves by less than half precision can show."""
    tensor = tensor.detach()
    return tensor.float() if tensor.dtype in (torch.float16, torch.bfloat16) else tensor
