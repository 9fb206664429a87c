"""When training has broken: a probe's loss has run away or lies too far behind another's, a run's has come back up."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from statistics import fmean, median

RECENT = 8  # levels before the last one: how much they differ is chance
RELAPSE = 0.25  # of what was learned
SURE = 150.0  # median deviations of the levels before; 52 in a run that was well, where BERT's sentences become longer


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


def checks(losses: Sequence[float], every: int, of: Callable[[Sequence[float]], float] = fmean) -> tuple[float, ...]:
    """The mean of every `every` losses (or `of` them), for the record; what is left over at the end is left out.

    >>> checks([4.0, 2.0, 2.0, 1.0, 1.0], 2)
    (3.0, 1.5)
    """
    return tuple(float(f"{of(losses[i - every : i]):.9g}") for i in range(every, len(losses) + 1, every))


def behind(losses: Sequence[float], every: int, limits: Sequence[float]) -> bool:
    """Whether a check is due after these losses, and the mean since the last is above its limit.

    >>> behind([4.0, 2.0, 2.0], 2, (2.5, 1.0)), behind([4.0, 2.0, 2.0, 1.0], 2, (2.5, 1.0))
    (False, True)
    """
    check, since = divmod(len(losses), every)
    return since == 0 and 0 < check <= len(limits) and fmean(losses[-every:]) > limits[check - 1]


def levels(losses: Sequence[float], every: int) -> tuple[float, ...]:
    """The median of every `every` losses: a batch that is hard does not show, training that has broken does.

    >>> levels([0.4, 0.5, 90.0, 0.4, 2.0, 1.9], 3)
    (0.5, 1.9)
    """
    return checks(losses, every, median)


def relapsed(seen: Sequence[float]) -> bool:
    """Whether by the last of these levels a good part of what was learned is lost again, and not by chance.

    >>> healthy = [2.3, 1.2, 0.8, 0.6, 0.5, 0.45, 0.4, 0.38, 0.36, 0.35]
    >>> relapsed([*healthy, 0.9]), relapsed([*healthy, 15.0]), relapsed([0.01, *[0.0] * 8, 0.01])
    (False, True, True)
    """
    if len(seen) <= RECENT:
        return False
    recent = seen[-RECENT - 1 : -1]
    usual = median(recent)
    chance = median(abs(level - usual) for level in recent)
    learned = seen[0] - usual
    return learned > 0 and seen[-1] - usual > max(RELAPSE * learned, SURE * chance)
