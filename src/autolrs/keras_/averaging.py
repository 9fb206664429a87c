"""Weight averaging inside `fit`, for any Keras optimizer; what it is: `core/averaging.py`.

x and v are the backend's own tensors, where the weights are. Other variables, such as BatchNorm's statistics, stay
those of y.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import astuple
from typing import Any

import keras
import numpy as np

from autolrs.core.averaging import PLAIN_SHARPNESS, Moves, moves, share, weight
from autolrs.keras_.host import KerasHost

# Whose momentum is of past steps and nothing else: added up, or their mean. AdamW is an Adam.
_SUMS = (keras.optimizers.SGD, keras.optimizers.RMSprop)
_MEANS = (keras.optimizers.Adam, keras.optimizers.Nadam, keras.optimizers.Adamax)
_NARROW = ("float16", "bfloat16")  # an average moves by less than they can show

Tensors = list[Any]
Move = Callable[[tuple[float, ...], Tensors, Tensors], tuple[Tensors, Tensors]]


class Averager:
    """x and v = z - x for a model's trainable variables; host snapshots keep them with the rest of the training."""

    def __init__(self, host: KerasHost) -> None:
        self._host, self._optimizer = host, host.optimizer
        self._accumulates = isinstance(self._optimizer, _SUMS)
        self._name = "momentum" if self._accumulates else "beta_1"
        self._momentum = _momentum(host, self._name)  # as the user set it; 0 in a plain average
        self._move = _MOVES[keras.backend.backend()](host)
        self._steps = 0
        self._x: Tensors = []
        self._v: Tensors = []  # none in a plain average

    @property
    def begun(self) -> bool:
        """Whether there is an average."""
        return self._steps > 0

    def update(self) -> None:
        """After an optimizer step from y to y': move z by it, take z into x, and put the model at the new y."""
        if not self.begun:  # z = x = y', and from the next step on momentum is shared
            self._x = [_wide(y) for y in self._host.weights()]
            self._v = [keras.ops.zeros_like(x) for x in self._x] if self._momentum else []
            self._share(begun=True)
        if self._momentum:
            by = moves(self._steps, self._momentum, accumulates=self._accumulates)
        else:
            by = Moves(0.0, 0.0, weight(self._steps, PLAIN_SHARPNESS), 0.0)
        self._x, self._v = self._move(astuple(by), self._x, self._v)
        self._steps += 1

    @contextmanager
    def averaged(self) -> Iterator[None]:
        """The model holds x inside, and what it held before after it; so does the optimizer the whole momentum."""
        if not self.begun:
            yield
            return
        self._host.sync()
        kept = [_copy(y) for y in self._host.weights()]
        trained_with = getattr(self._optimizer, self._name) if self._momentum else 0.0
        self._put_x()
        self._set(self._momentum)
        try:
            yield
        finally:
            self._host.sync()
            self._host.put_weights(kept)
            self._set(trained_with)

    def finish(self, *, average: bool) -> None:
        """Leave x in the model (or y) and give the momentum back. Steps after it begin a new average."""
        if average and self.begun:
            self._host.sync()
            self._put_x()
        self._steps, self._x, self._v = 0, [], []
        self._share(begun=False)

    def state(self) -> dict[str, Any]:
        """The number of steps, and the live tensors."""
        return {"steps": self._steps, "x": self._x, "v": self._v}

    def load(self, values: dict[str, Any]) -> None:
        """Go on from `state`, whose tensors are taken over, with the momentum that belongs to it."""
        self._steps, self._x, self._v = values["steps"], values["x"], values["v"]
        self._share(begun=self.begun)

    def _share(self, *, begun: bool) -> None:
        if self._momentum:
            self._set(share(self._momentum) if begun else self._momentum)
            self._host.use_step("shared" if begun else "whole")

    def _set(self, momentum: float) -> None:
        if self._momentum:
            setattr(self._optimizer, self._name, momentum)

    def _put_x(self) -> None:
        self._host.put_weights([_copy(x) for x in self._x])  # a copy: JAX's steps take over what the model holds


def averages_itself(optimizer: Any) -> bool:
    """Whether the optimizer keeps an average of its own."""
    parts = (optimizer, *getattr(optimizer, "optimizers", ()))  # of a MultiOptimizer
    return any(getattr(part, "use_ema", False) or type(part).__name__ == "ScheduleFreeAdamW" for part in parts)


def _momentum(host: KerasHost, name: str) -> float:
    """The momentum to be shared; 0 where that cannot be done."""
    if not isinstance(host.optimizer, (*_SUMS, *_MEANS)):
        return 0.0
    if any(variable.constraint is not None for variable in host.model.trainable_variables):
        return 0.0  # z, and y with it, may lie where the constraint allows no weights
    momentum = getattr(host.optimizer, name)
    return float(momentum) if isinstance(momentum, (int, float)) else 0.0


# How weights move, once a step: in place on torch, and compiled once on the others.


def _in_torch(host: KerasHost) -> Move:
    import torch

    @torch.no_grad()
    def move(by: tuple[float, ...], x: Tensors, v: Tensors) -> tuple[Tensors, Tensors]:
        keep, scale, c, out = by
        y = host.weights()
        wide = [p.to(of_x.dtype) for p, of_x in zip(y, x, strict=True)]
        if not v:
            torch._foreach_lerp_(x, wide, c)
            return x, v
        torch._foreach_mul_(v, keep)
        torch._foreach_add_(v, torch._foreach_sub(wide, x), alpha=scale)
        torch._foreach_add_(x, v, alpha=c)
        torch._foreach_copy_(y, torch._foreach_add(x, v, alpha=out))
        return x, v

    return move


def _in_jax(host: KerasHost) -> Move:
    import jax

    # Not y, which others may hold.
    moved = jax.jit(_moved, donate_argnums=(2, 3))

    def move(by: tuple[float, ...], x: Tensors, v: Tensors) -> tuple[Tensors, Tensors]:
        y, x, v = moved(np.array(by), host.weights(), x, v)
        if v:
            host.put_weights(y)
        return x, v

    return move


def _in_tensorflow(host: KerasHost) -> Move:
    import tensorflow as tf

    @tf.function(autograph=False)
    def move(by: Any, x: Tensors, v: Tensors) -> tuple[Tensors, Tensors]:
        y, x, v = _moved(by, host.weights(), x, v)
        if v:
            host.put_weights(y)
        return x, v

    return lambda by, x, v: move(tf.constant(by, "float64"), x, v)  # a tensor: plain numbers would be traced each time


_MOVES: dict[str, Callable[[KerasHost], Move]] = {"torch": _in_torch, "jax": _in_jax, "tensorflow": _in_tensorflow}


def _moved(by: Any, y: Tensors, x: Tensors, v: Tensors) -> tuple[Tensors, Tensors, Tensors]:
    """What `core.averaging.Moves` says, for all variables; without v the plain average, which leaves y alone."""
    if not v:
        return y, [_blended(by[2], *parts) for parts in zip(y, x, strict=True)], v
    moved = [_moved_one(by, *parts) for parts in zip(y, x, v, strict=True)]
    return [one[0] for one in moved], [one[1] for one in moved], [one[2] for one in moved]


def _moved_one(by: Any, y: Any, x: Any, v: Any) -> tuple[Any, Any, Any]:
    keep, scale, c, out = (keras.ops.cast(by[i], x.dtype) for i in range(4))
    v = keep * v + scale * (keras.ops.cast(y, x.dtype) - x)
    x = x + c * v
    return keras.ops.cast(x + out * v, y.dtype), x, v


def _blended(c: Any, y: Any, x: Any) -> Any:
    return x + keras.ops.cast(c, x.dtype) * (keras.ops.cast(y, x.dtype) - x)


def _wide(tensor: Any) -> Any:
    """A copy of the tensor, in single precision if it has less."""
    narrow = keras.backend.standardize_dtype(tensor.dtype) in _NARROW
    return _copy(keras.ops.cast(tensor, "float32") if narrow else tensor)


def _copy(tensor: Any) -> Any:
    return keras.ops.copy(keras.ops.stop_gradient(tensor))
