"""Weight averaging inside the training, for a part of the state's pytree; what it is: `core/averaging.py`.

x and v stay on the device, with the sharding of the weights they belong to. All else in the state, such as BatchNorm's
statistics, stays that of y.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import astuple
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from autolrs.core.averaging import PLAIN_SHARPNESS, moves, share, weight
from autolrs.jax_.host import JaxHost, copy_tree, put_like
from autolrs.jax_.hyperparams import momenta_of

Params = Callable[[Any], Any]


class Averager:
    """x and v = z - x for the leaves of `params(state)`; host snapshots keep them with the rest of the training."""

    def __init__(self, host: JaxHost, params: Params) -> None:
        self._host, self._params = host, params
        self._momenta: list[float] = []  # one for each place, as the user set them, all alike; none in a plain average
        self._steps = 0
        self._x: list[Any] = []
        self._v: list[Any] = []  # none in a plain average
        self._locate()

    @property
    def begun(self) -> bool:
        """Whether there is an average."""
        return self._steps > 0

    def update(self) -> None:
        """After a step from y to y': move z by it, take z into x, and put the state at the new y. Nobody waits."""
        leaves, structure = jax.tree.flatten(self._host.state)
        if structure != self._structure:
            self._locate()
        if not self.begun:
            self._begin(leaves)
        y = self._at_weights(leaves)
        if self._momenta:
            by = moves(self._steps, self._momenta[0], accumulates=self._found[0].accumulates)
            self._x, self._v, y = _move(self._x, self._v, _own(y, leaves), _numbers(*astuple(by)))
            for place, leaf in zip(self._weights, y, strict=True):
                leaves[place] = leaf
            self._host.state = jax.tree.unflatten(structure, leaves)
        else:
            self._x = _mix(self._x, y, _numbers(weight(self._steps, PLAIN_SHARPNESS)))
        self._steps += 1

    @contextmanager
    def averaged(self) -> Iterator[None]:
        """The host's state holds x inside, and what it held before after it."""
        kept = self._host.state
        leaves, structure = jax.tree.flatten(kept)
        self._put_x(leaves)
        self._host.state = jax.tree.unflatten(structure, leaves)
        try:
            yield
        finally:
            self._host.state = kept

    def finish(self, *, average: bool) -> None:
        """Leave x in the state (or y) and give the momentum back. Steps after it begin a new average."""
        leaves, structure = jax.tree.flatten(self._host.state)
        if average:
            self._put_x(leaves)
        self._put_momenta(leaves, self._momenta)
        self._host.state = jax.tree.unflatten(structure, leaves)
        self._steps, self._momenta, self._x, self._v = 0, [], [], []

    def state(self) -> Any:
        """A copy of the host's state with averaged weights: the next update takes x's memory."""
        with self.averaged():
            return copy_tree(self._host.state)

    def state_dict(self) -> dict[str, Any]:
        """The number of steps, the momenta that were shared, and the live arrays."""
        return {"steps": self._steps, "momenta": self._momenta, "x": self._x, "v": self._v}

    def load_state_dict(self, values: dict[str, Any]) -> None:
        """Go on from `state_dict`, whose arrays are taken over; numpy's go to where the weights are."""
        y = self._at_weights(jax.tree.leaves(self._host.state))
        self._steps, self._momenta = values["steps"], list(values["momenta"])
        self._x, self._v = ([*map(put_like, values[name], y)] for name in ("x", "v"))

    def _locate(self) -> None:
        """Find the weights and the momenta to be shared among the leaves of the state."""
        leaves, structure = jax.tree.flatten(self._host.state)
        self._structure: Any = structure
        self._weights = _places(self._host.state, self._params)
        found = momenta_of(self._host.state)
        moved = Counter(shape for one in found for shape in one.shapes)
        # An optimizer that moves more than is averaged, as that of a second network, keeps its momentum.
        alone = moved <= Counter(leaf.shape for leaf in self._at_weights(leaves))
        self._found = found if alone and len({one.accumulates for one in found}) == 1 else []

    def _begin(self, leaves: list[Any]) -> None:
        """The first step: z = x = y', and from the next step on momentum is shared. Momenta are read, this once."""
        self._x = [_wide(leaf) for leaf in self._at_weights(leaves)]
        momenta = [float(value) for value in jax.device_get([leaves[one.place] for one in self._found])]
        if len(set(momenta)) == 1 and 0.0 < momenta[0] < 1.0:
            self._momenta = momenta
            self._put_momenta(leaves, [share(momentum) for momentum in momenta])
            self._v = [x - x for x in self._x]  # zeros, where x is
            for place in self._weights:  # to be donated, and the user may hold those that have not moved yet
                leaves[place] = jnp.copy(leaves[place])

    def _at_weights(self, leaves: list[Any]) -> list[Any]:
        return [leaves[place] for place in self._weights]

    def _put_momenta(self, leaves: list[Any], values: list[float]) -> None:
        for one, value in zip(self._found, values, strict=False):  # none in a plain average
            leaf = leaves[one.place]
            leaves[one.place] = put_like(np.asarray(value, leaf.dtype), leaf)

    def _put_x(self, leaves: list[Any]) -> None:
        for place, x in zip(self._weights, self._x, strict=False):  # none before there is an average
            leaves[place] = x.astype(leaves[place].dtype)


def find(host: JaxHost, params: Params | None) -> Averager | None:
    """An averager for `params(state)`, or for what a state calls `params`; None if it has no such part."""
    if params is not None:
        return Averager(host, params)
    try:
        return Averager(host, _usual)
    except (AttributeError, KeyError, ValueError):  # none, or none that could be weights
        return None


def _usual(state: Any) -> Any:
    return state["params"] if isinstance(state, Mapping) else state.params


@partial(jax.jit, donate_argnums=(0, 1, 2))
def _move(x: list[Any], v: list[Any], y: list[Any], by: Any) -> tuple[list[Any], list[Any], list[Any]]:
    """`core.averaging.Moves` with its numbers as an array, so that this is compiled once."""

    def one(x: Any, v: Any, y: Any) -> tuple[Any, Any, Any]:
        keep, scale, c, out = by.astype(x.dtype)
        v = keep * v + scale * (y.astype(x.dtype) - x)
        x = x + c * v
        return x, v, (x + out * v).astype(y.dtype)

    moved = [one(*leaf) for leaf in zip(x, v, y, strict=True)]
    return [m[0] for m in moved], [m[1] for m in moved], [m[2] for m in moved]


@partial(jax.jit, donate_argnums=0)
def _mix(x: list[Any], y: list[Any], c: Any) -> list[Any]:
    """A plain average's step."""
    return [old + c[0].astype(old.dtype) * (new.astype(old.dtype) - old) for old, new in zip(x, y, strict=True)]


def _numbers(*values: float) -> Any:
    return jax.device_put(np.asarray(values, jax.dtypes.canonicalize_dtype(float)))


def _own(y: list[Any], leaves: list[Any]) -> list[Any]:
    """`y` to be donated: an array that stands elsewhere in the state as well is needed there."""
    seen = Counter(map(id, leaves))
    return [jnp.copy(leaf) if seen[id(leaf)] > 1 else leaf for leaf in y]


def _wide(leaf: Any) -> Any:
    """A copy, in single precision if it has less: an average moves by less than half precision can show."""
    narrow = jnp.issubdtype(leaf.dtype, jnp.floating) and leaf.dtype.itemsize < 4
    return leaf.astype(jnp.float32) if narrow else jnp.copy(leaf)


def _places(state: Any, params: Params) -> list[int]:
    """Which leaves of the state the weights are: the floating-point arrays in `params(state)`."""
    leaves, structure = jax.tree.flatten(state)
    # An array may stand in two places, as in an average of the user's that begins with the weights: copies are two.
    seen: set[int] = set()
    for place, leaf in enumerate(leaves):
        if id(leaf) in seen and isinstance(leaf, jax.Array):
            leaves[place] = jnp.copy(leaf)
        seen.add(id(leaf))
    where = {id(leaf): place for place, leaf in enumerate(leaves)}
    chosen = jax.tree.leaves(params(jax.tree.unflatten(structure, leaves)))
    for leaf in chosen:
        if id(leaf) not in where:
            what = f"an array of shape {leaf.shape}" if hasattr(leaf, "shape") else repr(leaf)
            raise ValueError(f"`params` must give a part of the state, got {what} that is none of its leaves")
    places = {where[id(leaf)] for leaf in chosen if isinstance(leaf, jax.Array)}
    weights = [place for place in places if jnp.issubdtype(leaves[place].dtype, jnp.inexact)]
    if not weights:
        raise ValueError(
            f"`params` must give the weights that are trained, floating-point arrays, got {len(chosen)} leaves "
            f"without any: {[str(getattr(leaf, 'dtype', type(leaf).__name__)) for leaf in chosen[:5]]}"
        )
    return sorted(weights)
