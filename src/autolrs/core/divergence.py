"""When a probe is not worth its end: its loss has run away, or lies too far behind another's."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, median


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


def checks(losses: Sequence[float], every: int) -> tuple[float, ...]:
    """The mean of every `every` losses, for the record; what is left over at the end is left out.

    >>> checks([4.0, 2.0, 2.0, 1.0, 1.0], 2)
    (3.0, 1.5)
    """
    return tuple(float(f"{fmean(losses[i - every : i]):.9g}") for i in range(every, len(losses) + 1, every))


def behind(losses: Sequence[float], every: int, limits: Sequence[float]) -> bool:
    """Whether a check is due after these losses, and the mean since the last is above its limit.

    >>> behind([4.0, 2.0, 2.0], 2, (2.5, 1.0)), behind([4.0, 2.0, 2.0, 1.0], 2, (2.5, 1.0))
    (False, True)
    """
    check, since = divmod(len(losses), every)
    return since == 0 and 0 < check <= len(limits) and fmean(losses[-every:]) > limits[check - 1]
