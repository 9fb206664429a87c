"""How many steps an `evaluate` is worth by the clock: it is counted as a setting says, which may be far from true."""

from __future__ import annotations

import math
from collections.abc import Callable
from time import perf_counter

from autolrs.core.settings import Settings

SLOW = 1.0  # seconds; what takes less does not matter, and is not worth a remark that depends on the machine
FAR = 3.0  # times what it is counted as
TIMES = 2  # that it must be so: a first call may compile, or wake up workers


class Pace:
    """Times steps between two boundaries, and calls of `evaluate`. Nothing is decided by it."""

    def __init__(self) -> None:
        self._since = 0.0
        self._step = math.inf  # seconds
        self._worth: list[float] = []  # in steps, of calls that were slow

    def begin(self) -> None:
        """Steps begin now."""
        self._since = perf_counter()

    def took(self, steps: int) -> None:
        """So many were taken since."""
        if steps:
            self._step = (perf_counter() - self._since) / steps

    def time(self, evaluate: Callable[[], float]) -> float:
        """What `evaluate` gives."""
        begin = perf_counter()
        loss = evaluate()
        seconds = perf_counter() - begin
        if seconds > SLOW and math.isfinite(self._step):
            self._worth.append(seconds / max(self._step, 1e-9))
        return loss

    def remark(self, settings: Settings) -> str:
        """That `evaluate` costs far more than it is counted as, when that has just become clear; or nothing."""
        if settings.strategy != "horizon" or len(self._worth) != TIMES:
            return ""
        worth, self._worth = min(self._worth), [*self._worth, 0.0]  # said once
        if worth <= FAR * settings.evaluate_cost:
            return ""
        return (
            f"one `evaluate` takes as long as {worth:.0f} steps, but counts as {settings.evaluate_cost:.3g} within "
            f"max_cost {settings.max_cost}: let it use less data, or say evaluate_cost={worth:.0f}"
        )
