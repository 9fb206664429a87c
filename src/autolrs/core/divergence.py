"""When a probe's loss has run away."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median


def diverged(losses: Sequence[float], recent: int) -> bool:
    """Whether the last `recent` losses are not finite or far above the first: by three times their size or spread.

    >>> diverged([2.0, 1.9, 1.8, 1.7], 1), diverged([2.0, 9.0, 20.0, 50.0, 400.0, 9000.0], 1)
    (False, True)
    """
    if not all(map(math.isfinite, losses[-recent:])):
        return True
    first = losses[:4]
    start = median(first)
    return median(losses[-max(recent, 4) :]) > start + 3 * max(abs(start), max(first) - min(first))
