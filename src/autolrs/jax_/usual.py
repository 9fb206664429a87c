"""What is known of a training state before anything is tried: its usual LR, whether it has norms, is it new."""

from __future__ import annotations

import math
from typing import Any

import jax
import numpy as np
from jax.tree_util import tree_flatten_with_path

from autolrs.core import usual

TABLES = ("embedding", "embeddings")  # as Flax and Haiku name them: a step changes the rows that were looked up
HEADS = ("query", "key", "value"), "out"  # in attention, kernels of three axes: inputs and heads; heads and outputs


def usual_lr(state: Any) -> float | None:
    """That of the layers in a training state (`core/usual.py`); None where no Adam of Optax is found in it.

    Kernels have their outputs last, as those of Flax and Haiku. Yogi and LAMB look like Adam from here.

    >>> import jax.numpy as jnp, optax
    >>> params = {
    ...     "dense": {"kernel": jnp.ones((32, 128)), "bias": jnp.ones(128)},
    ...     "out": {"kernel": jnp.ones((128, 10))},
    ... }
    >>> usual_lr((params, optax.adamw(1e-3).init(params))), usual_lr((params, optax.sgd(0.1).init(params)))
    (0.0125, None)
    """
    try:
        import optax
    except ImportError:
        return None
    adam = optax.ScaleByAdamState
    parts = jax.tree.leaves(state, is_leaf=lambda part: isinstance(part, adam))
    leaves = [leaf for part in parts if isinstance(part, adam) for leaf in tree_flatten_with_path(part.mu)[0]]
    return usual.usual_lr(_inputs(_names(path), leaf.shape) for path, leaf in leaves if _is_kernel(_names(path), leaf))


def normalised(state: Any) -> bool:
    """Whether the network has layers that normalise, by leaves called `scale` (Flax and Haiku)."""
    return bool(_scales(state))


def trained_before(state: Any) -> bool:
    """Whether most of its normalising layers have scales that differ: they all begin as ones.

    >>> import jax.numpy as jnp
    >>> [trained_before({"norm": {"scale": jnp.array(scale)}}) for scale in ([1.0, 1.0], [1.0, 0.9])]
    [False, True]
    """
    here = (np.asarray(scale) for scale in _scales(state) if getattr(scale, "is_fully_addressable", True))
    return usual.trained_before(bool((scale != scale[0]).any()) for scale in here)


def _scales(state: Any) -> list[Any]:
    """Not what an optimizer keeps of them."""
    leaves = ((_names(path), leaf) for path, leaf in tree_flatten_with_path(state)[0])
    kept = ("mu", "nu", "trace", "opt_state")
    named = [leaf for path, leaf in leaves if "scale" in path[-2:] and not any(name in kept for name in path)]
    return [leaf for leaf in named if getattr(leaf, "ndim", 0) == 1 and leaf.size]


def _names(path: tuple[Any, ...]) -> list[str]:
    """The keys and attributes on the way to a leaf."""
    return [str(getattr(key, "key", getattr(key, "name", ""))) for key in path]


def _is_kernel(path: list[str], leaf: Any) -> bool:
    return len(leaf.shape) > 1 and "bias" not in path and not any(name in TABLES for name in path)


def _inputs(path: list[str], shape: tuple[int, ...]) -> float:
    into, out = HEADS
    if len(shape) == 3 and any(name in into for name in path):
        return shape[0]
    return math.prod(shape[:-1]) if out in path else usual.of_window(shape[-2], math.prod(shape[:-2]))
