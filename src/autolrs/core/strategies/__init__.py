"""Strategies over the engine's primitives, one per file."""

from __future__ import annotations

from collections.abc import Callable

from autolrs.core.engine import Strategy
from autolrs.core.strategies.horizon import Horizon
from autolrs.core.strategies.paper import Paper

STRATEGIES: dict[str, Callable[[], Strategy]] = {"horizon": Horizon, "paper": Paper}


def get(name: str) -> Strategy:
    """The strategy of that name."""
    if name not in STRATEGIES:
        raise ValueError(f"`strategy` must be one of {', '.join(STRATEGIES)}; got {name!r}")
    return STRATEGIES[name]()
