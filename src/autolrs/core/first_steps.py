"""How large an optimizer's first steps are beside its later ones: RAdam's are small, RMSprop's and Adagrad's large.

A miniature run is over before they have become what they are for most of a whole run. By RAdam (Liu et al. 2020) it
wants ten times the LR of a whole one, by Adagrad a seventh. Adam and its like, whose averages are corrected, take
steps of one size from the first.
"""

from __future__ import annotations

import math

from autolrs.core.settings import Settings

LEAST = 5.0  # [rho_t] up to here there is no rectification, and steps are momentum's


def rectified(step: float, beta: float) -> float:
    """[r_t] of Adam's step, by the second beta; 1 where that is so low that nothing is ever rectified.

    >>> [round(rectified(step, 0.999), 3) for step in (1, 27, 1333, 1e6)], rectified(10, 0.6)
    ([0.017, 0.103, 0.722, 1.0], 1.0)
    """
    most = 2.0 / (1.0 - beta) - 1.0
    if most <= LEAST:
        return 1.0
    seen = min(max(most - 2.0 * step * beta**step / (1.0 - beta**step), LEAST), most)
    return math.sqrt((seen - 4.0) * (seen - 2.0) * most / ((most - 4.0) * (most - 2.0) * seen))


def uncorrected(step: float, decay: float) -> float:
    """Of the first step: where gradients are divided by the root of a sum of squares that began at 0, and of which each
    step keeps the share `decay`. With 1, as Adagrad's, the sum grows for ever.

    >>> [round(uncorrected(step, 0.99), 3) for step in (1, 10, 1000)], uncorrected(100, 1.0)
    ([1.0, 0.323, 0.1], 0.1)
    """
    sums = step if decay == 1.0 else (1.0 - decay**step) / (1.0 - decay)
    return 1.0 / math.sqrt(sums)


def in_run(steps: int, settings: Settings) -> float:
    """Their size a third of the way through a run, by when half of what a falling LR does is done; 1 of others.

    >>> round(in_run(80, Settings(rectified=0.999)), 2), in_run(75, Settings(uncorrected=1.0)), in_run(80, Settings())
    (0.1, 0.2, 1.0)
    """
    third, size = max(steps / 3, 1.0), 1.0
    if settings.rectified is not None:
        size *= rectified(third, settings.rectified)
    if settings.uncorrected is not None:
        size *= uncorrected(third, settings.uncorrected)
    return size
