"""Test loss along a run, measured beside it: no method sees it, and it counts as no step of the method."""

from __future__ import annotations

import math
from collections.abc import Callable

POINTS = 32  # from a quarter of the run on; before that no schedule reaches anyone's final loss


class Curve:
    """(committed step, test loss) at fixed steps. The measuring leaves the random state alone."""

    def __init__(self, measure: Callable[[], float], total_steps: int, points: int = POINTS) -> None:
        """`measure` () -> test loss, which a method may wrap whose weights need preparing before they are tested.

        `points` 0 measures nothing.
        """
        first = total_steps // 4
        steps = {round(first + (total_steps - first) * i / points) for i in range(1, points + 1)}
        self._due = sorted(steps, reverse=True)
        self.measure = measure
        self.points: list[tuple[int, float]] = []

    def at(self, step: int) -> None:
        """Measure if a point is due at `step` or was due before it; a loss that is not finite counts as infinite."""
        if not self._due or step < self._due[-1]:
            return
        while self._due and step >= self._due[-1]:
            self._due.pop()
        value = self.measure()
        self.points.append((step, value if math.isfinite(value) else math.inf))


def steps_to(points: list[tuple[int, float]], target: float) -> float:
    """First step at which the test loss is at or below `target`; infinite if it never is.

    >>> steps_to([(10, 0.9), (20, 0.5), (30, 0.6)], 0.6)
    20.0
    """
    return next((float(step) for step, loss in points if loss <= target), math.inf)
