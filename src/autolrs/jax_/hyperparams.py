"""The LR of an Optax optimizer as a number that a jitted step can set."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp


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
