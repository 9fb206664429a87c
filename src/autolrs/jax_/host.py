"""A pytree in training as a `Host`.

Snapshots are copies on the device, and so is what a restore puts back, since a step may donate its buffers. The LR is a
scalar on the device, of one type throughout, so that a step compiles once.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from autolrs.run.host import Token
from autolrs.run.rng import PlainRng

_NUMBERS = (bool, int, float, complex, np.ndarray, np.generic)


class Tracked(Protocol):
    """What is saved and put back beside the state: the average of its weights."""

    def state_dict(self) -> dict[str, Any]:
        """Plain values and the live arrays."""

    def load_state_dict(self, values: dict[str, Any]) -> None:
        """Go on from `state_dict`, beside a state that stands where it stood then; arrays are taken over."""


class JaxHost:
    """A pytree in training and the LR of its next step, as a `Host`."""

    def __init__(self, state: Any, evaluate: Callable[[Any], Any] | None = None) -> None:
        # A plain number would become an array in the first step, and the second one would be compiled again.
        self.state = jax.tree.map(lambda leaf: jnp.asarray(leaf) if isinstance(leaf, _NUMBERS) else leaf, state)
        self._evaluate = evaluate
        self.around_evaluate: Callable[[], AbstractContextManager[None]] = nullcontext  # shows the averaged weights
        self.tracked: Tracked | None = None
        self.rng = PlainRng()
        self._snapshots: dict[Token, tuple[Any, float, Any, Any]] = {}
        self._last = 0
        self.set_lr(0.0)

    def snapshot(self) -> Token:
        """Copy the state, on its device."""
        self._last += 1
        self._snapshots[self._last] = (copy_tree(self.state), self.rate, self.rng.get(), copy_tree(self._beside()))
        return self._last

    def restore(self, token: Token) -> None:
        """Put a copy of a snapshot back: the next step may donate it, and the snapshot serves again."""
        state, rate, rng, beside = self._snapshots[token]
        self._stand(copy_tree(state), rate, rng, copy_tree(beside))

    def release(self, token: Token) -> None:
        """Forget a snapshot."""
        del self._snapshots[token]

    def set_lr(self, lr: float) -> None:
        """Send the LR of the next step to the device; nobody waits for it."""
        self.rate = float(lr)
        self.lr = jax.device_put(np.asarray(lr, jax.dtypes.canonicalize_dtype(float)))

    def evaluate(self, *, raw: bool = False) -> float:
        """The user's validation loss of the present state; the random state is put back.

        It sees the averaged weights if there are any; with `raw` those that are being trained.
        """
        assert self._evaluate is not None
        rng = self.rng.get()
        try:
            with nullcontext() if raw else self.around_evaluate():
                return _number(jax.device_get(self._evaluate(self.state)), "the value of `evaluate`")
        finally:
            self.rng.set(rng)

    # Checkpoints

    def dump(self, tokens: Iterable[Token]) -> dict[str, Any]:
        """The live state and some snapshots as plain values and numpy arrays."""
        live = (self.state, self.rate, self.rng.get(), self._beside())
        parts = {0: live, **{token: self._snapshots[token] for token in tokens}}
        states = {
            key: [_to_numpy(state), rate, rng, jax.device_get(beside)]
            for key, (state, rate, rng, beside) in parts.items()
        }
        return {"paths": _paths(self.state), "states": states}

    def load(self, values: dict[str, Any]) -> None:
        """The inverse of `dump`; the state here says what type and device each leaf has."""
        here, there = _paths(self.state), [list(path) for path in values["paths"]]
        for mine, saved in zip([*here, ["nothing"]], [*there, ["nothing"]], strict=False):
            if mine != saved:
                raise ValueError(f"the checkpoint is of another state: {' '.join(saved)} there, {' '.join(mine)} here")
        parts = {  # before there were averages, a checkpoint had nothing beside the state
            key: (_from_numpy(leaves, self.state), rate, rng, beside[0] if beside else None)
            for key, (leaves, rate, rng, *beside) in values["states"].items()
        }
        self._stand(*parts.pop(0))
        self._snapshots, self._last = parts, max(parts, default=0)

    def _beside(self) -> Any:
        return None if self.tracked is None else self.tracked.state_dict()

    def _stand(self, state: Any, rate: float, rng: Any, beside: Any) -> None:
        self.state = state
        if self.tracked is not None:
            self.tracked.load_state_dict(beside)
        self.rng.set(rng)
        self.set_lr(rate)


def copy_tree(tree: Any) -> Any:
    return jax.tree.map(lambda leaf: jnp.copy(leaf) if isinstance(leaf, jax.Array) else copy.copy(leaf), tree)


def put_like(value: Any, leaf: Any) -> Any:
    """A numpy array where `leaf` is, and as free to move as that; an array on a device stays where it is."""
    if isinstance(value, jax.Array):
        return value
    if leaf.weak_type and leaf.ndim == 0:
        return jax.device_put(value.item())  # a plain number once: the type of what is computed from it gives way
    return jax.device_put(value, leaf.sharding) if leaf.committed else jax.device_put(value)


def read_losses(losses: Sequence[Any]) -> list[float]:
    return [_number(loss, "`loss`") for loss in jax.device_get(list(losses))]


def _number(value: Any, what: str) -> float:
    if np.size(value) != 1:
        raise TypeError(f"{what} must be a number or an array with one value, got shape {np.shape(value)}")
    return float(np.reshape(value, ()))


def _is_key(leaf: Any) -> bool:
    return isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _paths(state: Any) -> list[list[str]]:
    """Path, shape and type of each leaf."""
    leaves = jax.tree_util.tree_flatten_with_path(state)[0]
    kinds = [(path, getattr(leaf, "shape", ()), getattr(leaf, "dtype", type(leaf).__name__)) for path, leaf in leaves]
    return [[jax.tree_util.keystr(path), str(shape), str(dtype)] for path, shape, dtype in kinds]


def _to_numpy(state: Any) -> list[Any]:
    leaves = [jax.random.key_data(leaf) if _is_key(leaf) else leaf for leaf in jax.tree.leaves(state)]
    return jax.device_get(leaves)


def _from_numpy(leaves: list[Any], like: Any) -> Any:
    def one(saved: Any, leaf: Any) -> Any:
        if not isinstance(leaf, jax.Array):
            return saved
        if _is_key(leaf):
            return jax.random.wrap_key_data(jnp.asarray(saved), impl=jax.random.key_impl(leaf))
        return put_like(saved, leaf)

    here, structure = jax.tree.flatten(like)
    return jax.tree.unflatten(structure, map(one, leaves, here))
