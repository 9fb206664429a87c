"""What is seen along a run, beside it: test loss at a few steps, LR and training loss at many.

No method sees any of it, and measuring counts as no step of the method.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

POINTS = 32  # from a quarter of the run on; before that no schedule reaches anyone's final loss
SMOKE_POINTS = 4
TRACE_POINTS = 100

Measure = Callable[[], "float | tuple[float, float]"]  # test loss, and accuracy where the task has one


class Curve:
    """Test losses (and accuracies) at fixed committed steps, and the trace of LRs and training losses.

    The measuring leaves the random state alone.
    """

    def __init__(self, measure: Measure, total_steps: int, points: int = POINTS) -> None:
        """`measure` may be wrapped by a method whose weights need preparing before they are tested.

        `points` 0 measures and traces nothing.
        """
        first = total_steps // 4
        steps = {round(first + (total_steps - first) * i / points) for i in range(1, points + 1)}
        self._due = sorted(steps, reverse=True)
        self.measure = measure
        self.points: list[tuple[int, float]] = []
        self.accuracies: list[tuple[int, float]] = []
        self.lrs: list[tuple[int, float]] = []
        self.losses: list[tuple[int, float]] = []
        self._window = max(1, total_steps // TRACE_POINTS) if points else 0
        self._sum: Any = 0.0
        self._count = 0

    def at(self, step: int, lr: float | None = None, loss: Any = None) -> None:
        """After committed step number `step`, taken with `lr` at training loss `loss` (a number or a scalar tensor).

        Measures if a point is due at `step` or was due before it; a loss that is not finite counts as infinite.
        """
        if lr is not None and loss is not None and self._window:
            self._trace(step, lr, loss)
        if not self._due or step < self._due[-1]:
            return
        while self._due and step >= self._due[-1]:
            self._due.pop()
        found = self.measure()
        value, accuracy = found if isinstance(found, tuple) else (found, None)
        self.points.append((step, value if math.isfinite(value) else math.inf))
        if accuracy is not None:
            self.accuracies.append((step, accuracy))

    def _trace(self, step: int, lr: float, loss: Any) -> None:
        """LR of this step, mean training loss of the window that it ends; losses stay on their device within one."""
        self._sum, self._count = self._sum + loss, self._count + 1
        if step % self._window == 0:
            value = float(self._sum) / self._count
            self.lrs.append((step, lr))
            self.losses.append((step, value if math.isfinite(value) else math.inf))
            self._sum, self._count = 0.0, 0


def steps_to(points: list[tuple[int, float]], target: float) -> float:
    """First step at which the test loss is at or below `target`; infinite if it never is.

    >>> steps_to([(10, 0.9), (20, 0.5), (30, 0.6)], 0.6)
    20.0
    """
    return next((float(step) for step, loss in points if loss <= target), math.inf)
