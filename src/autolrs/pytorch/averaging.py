"""Weight averaging inside the training, for any optimizer: gradients are taken on the way to the average.

Schedule-Free's form (Defazio et al. 2024) around a schedule that still decays. z is what the optimizer moves, x the
average of its iterates, and the model is trained at y between them:

    z <- z + step         x <- x + c (z - x)         y = (1 - b) z + b x

x is what the training is for: the model gets it at the end, and validation sees it. Training at y acts as momentum, so
the optimizer's own is shared between the two: 1 - b = 1 - momentum' = sqrt(1 - momentum); all of it here, or in both
places, is worse (docs/research-log.md). Where that cannot be done, because an optimizer has no momentum, is built
around it or is unknown, b is 0: a plain average, which leaves the training as it is. Buffers such as BatchNorm's
statistics stay those of y.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from autolrs.pytorch.state import local, reshard, unwrapped

NAME = "(averaging)"  # among the tracked objects; none that a user can give
SHARPNESS = 5.0  # step t weighs t^5: x is about the last sixth of the steps so far
PLAIN_SHARPNESS = 20.0  # where nothing but the end depends on x, a younger average is better
BY_CHANCE = 0.005  # of the validation loss: where y was ahead by no more, it was mostly behind in the test

_KNOWN = (  # whose momentum is an average of past steps and nothing else
    torch.optim.SGD,
    torch.optim.RMSprop,
    torch.optim.Adam,
    torch.optim.AdamW,
    torch.optim.NAdam,
    torch.optim.RAdam,
    torch.optim.Adamax,
)


def share(momentum: float) -> float:
    """Half of a momentum: twice it is the whole.

    >>> round(share(0.9), 3), round(1 - (1 - share(0.9)) ** 2, 3)
    (0.684, 0.9)
    """
    return 1.0 - math.sqrt(1.0 - momentum)


def is_better(averaged: float, raw: float) -> bool:
    """Whether x is to be taken, by the validation losses of x and y: unless y is ahead by more than chance.

    >>> is_better(0.30, 0.31), is_better(0.300, 0.299), is_better(0.30, 0.29), is_better(math.inf, 0.3)
    (True, True, False, False)
    """
    if not math.isfinite(averaged):
        return not math.isfinite(raw)
    return not raw < averaged - BY_CHANCE * abs(averaged)


class Averager:
    """x and v = z - x for an optimizer's parameters; host snapshots keep them with the rest of the training."""

    def __init__(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        self._model, self._optimizer = unwrapped(model), optimizer
        self._momenta: list[float] = []  # per group, as the user set them; 0 in a plain average
        self._sharpness = SHARPNESS
        self._steps = 0
        self._x: list[Tensor] = []
        self._v: list[Tensor] = []

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
        c, before = self._weight(self._steps), self._weight(self._steps - 1)
        self._steps += 1
        start = 0
        for group, momentum in zip(groups, self._momenta, strict=True):
            part = slice(start, start + len(group["params"]))
            start = part.stop
            y, x, v = parameters[part], self._x[part], self._v[part]
            if not momentum:
                torch._foreach_lerp_(x, [_wide(p) for p in y], c)
                continue
            b = share(momentum)
            # A step of SGD was longer with its whole momentum; z goes as far, so that the LR means what it meant.
            scale = (1.0 - b) / (1.0 - momentum) if "momentum" in group else 1.0
            # v is from before x moved towards z: z - x is (1 - before) v. Written with differences from x, a parameter
            # that did not move stays what it is to the bit.
            torch._foreach_sub_(y, x)
            torch._foreach_mul_(v, (1.0 - before) * (1.0 - scale * (1.0 - b)))
            torch._foreach_add_(v, y, alpha=scale)
            torch._foreach_add_(x, v, alpha=c)
            torch._foreach_copy_(y, x)
            torch._foreach_add_(y, v, alpha=(1.0 - b) * (1.0 - c))

    @contextmanager
    def averaged(self) -> Iterator[None]:
        """The model holds x inside, and what it held before after it."""
        if not self.begun:
            yield
            return
        kept = [p.detach().clone() for p in self._parameters()]
        self._put(self._x)
        try:
            yield
        finally:
            self._put(kept)

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

    def state_dict(self) -> dict[str, Any]:
        """The number of steps, the momenta that were shared, and the live tensors."""
        return {
            "steps": self._steps,
            "sharpness": self._sharpness,
            "momenta": self._momenta,
            "x": self._x,
            "v": self._v,
        }

    def load_state_dict(self, values: dict[str, Any]) -> None:
        """Go on from `state_dict`; its tensors are taken over."""
        devices = [p.device for p in self._parameters()]
        self._steps, self._sharpness, self._momenta = values["steps"], values["sharpness"], list(values["momenta"])
        self._x, self._v = ([t.to(d) for t, d in zip(values[k], devices, strict=False)] for k in ("x", "v"))

    def _begin(self, parameters: list[Tensor]) -> None:
        """The first step, or groups that were added: z = x = y', and from the next step on momentum is shared."""
        known = isinstance(self._optimizer, _KNOWN)
        for group in self._optimizer.param_groups[len(self._momenta) :]:
            momentum = _momentum(group) if known else 0.0
            self._momenta.append(momentum)
            if momentum:
                _set_momentum(group, share(momentum))
        self._sharpness = SHARPNESS if any(self._momenta) else PLAIN_SHARPNESS
        self._x += [_wide(p).clone() for p in parameters[len(self._x) :]]
        self._v += [torch.zeros_like(x) for x in self._x[len(self._v) :]]

    def _weight(self, steps: int) -> float:
        """c of the iterate that follows `steps` others."""
        return (self._sharpness + 1.0) / (self._sharpness + 1.0 + steps)

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
