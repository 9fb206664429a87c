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
        self._slow, self._worth = 0, math.inf  # calls that were slow, and the least of them in steps

    def begin(self) -> None:
        """Steps begin now."""
        self._since = perf_counter()

    def took(self, steps: int) -> None:
        """So many were taken since."""
        if steps:
            self._step = (perf_counter() - self._since) / steps

    def time(self, evaluate: Callable[[], float], settings: Settings) -> tuple[float, str]:
        """What `evaluate` gives; and, once, that it costs far more than it is counted as."""
        begin = perf_counter()
        loss = evaluate()
        seconds = perf_counter() - begin
        if seconds <= SLOW or math.isinf(self._step):
            return loss, ""
        self._slow, self._worth = self._slow + 1, min(self._worth, seconds / max(self._step, 1e-9))
        known = settings.strategy != "horizon" or self._worth <= FAR * settings.evaluate_steps
        if self._slow != TIMES or known:
            return loss, ""
        return loss, (
            f"one `evaluate` takes as long as {self._worth:.0f} steps, but counts as {settings.evaluate_steps:.3g} "
            f"within max_cost {settings.max_cost}: let it use less data, or say evaluate_cost={self._worth:.0f}"
        )
