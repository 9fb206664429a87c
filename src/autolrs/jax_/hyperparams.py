"""What an Optax optimizer holds as numbers that can be set: its LR, inside a jitted step, and its momentum."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax.tree_util import DictKey, GetAttrKey, tree_flatten_with_path


def lr_setter(opt_state: Any) -> Callable[[Any, Any], Any]:
    """`set_lr(opt_state, lr) -> opt_state` for an optimizer made with `optax.inject_hyperparams`, to use under jit.

    Several of them (`optax.multi_transform`) keep the ratios that their LRs have in `opt_state` to the first one's.
    """
    try:
        import optax
    except ImportError as error:
        raise ImportError("autolrs.jax_.lr_setter needs Optax: pip install 'autolrs[jax]'") from error
    found = optax.tree.get_all_with_path(opt_state, "learning_rate")
    if not found or not all(isinstance(value, jax.Array) for _, value in found):
        what = "has a schedule for its `learning_rate`" if found else "holds no `learning_rate`"
        raise ValueError(
            f"the optimizer state {what}: make it with a number, as in optax.inject_hyperparams(optax.adam)(1e-3)"
        )
    first = float(found[0][1])
    if not first > 0:
        raise ValueError(f"the first `learning_rate` must be above 0: the others are kept in ratio to it, got {first}")
    places = [(path, float(value) / first, value.dtype) for path, value in found]

    def set_lr(opt_state: Any, lr: Any) -> Any:
        for path, ratio, dtype in places:
            value = jnp.asarray(lr if ratio == 1.0 else lr * ratio, dtype)
            opt_state = optax.tree.set(opt_state, lambda here, _, path=path: here == path, learning_rate=value)
        return opt_state

    return set_lr


@dataclass(frozen=True, slots=True)
class Momentum:
    """Which leaf of a state a momentum is, whether its steps add up, and the shapes of what it is the momentum of."""

    place: int
    accumulates: bool
    shapes: tuple[tuple[int, ...], ...]


def momenta_of(state: Any) -> list[Momentum]:
    """The momenta of all optimizers in a pytree; none where one of them has none, or none that can be set from outside.

    Known are those made with `optax.inject_hyperparams` whose momentum is an average of past steps and nothing else:
    `b1` where there is a `ScaleByAdamState`, `momentum` where there is a `TraceState`, which adds steps up.
    """
    try:
        import optax
    except ImportError:
        return []
    injected, known = optax.InjectStatefulHyperparamsState, (optax.ScaleByAdamState, optax.TraceState)
    parts, _ = tree_flatten_with_path(state, is_leaf=lambda part: isinstance(part, (injected, *known)))
    places = {path: place for place, (path, _) in enumerate(tree_flatten_with_path(state)[0])}
    found = []
    for path, part in parts:
        if isinstance(part, known):
            return []  # fixed in the step
        if not isinstance(part, injected):
            continue
        inside = jax.tree.leaves(part.inner_state, is_leaf=lambda part: isinstance(part, (injected, *known)))
        own = [inner for inner in inside if isinstance(inner, (injected, *known))]
        if len(own) != 1 or isinstance(own[0], injected):
            return []
        accumulates = isinstance(own[0], optax.TraceState)
        name = "momentum" if accumulates else "b1"
        place = places.get((*path, GetAttrKey("hyperparams"), DictKey(name)))
        if place is None or name in part.hyperparams_states:  # a schedule would set it again
            return []
        moved = jax.tree.leaves(own[0].trace if accumulates else own[0].mu)
        found.append(Momentum(place, accumulates, tuple(leaf.shape for leaf in moved)))
    return found


def averages_itself(state: Any) -> bool:
    """Whether an optimizer in a pytree is Schedule-Free's, whose average would be lost in another."""

    def is_free(part: Any) -> bool:
        return type(part).__name__ == "ScheduleFreeState"

    return any(map(is_free, jax.tree.leaves(state, is_leaf=is_free)))
