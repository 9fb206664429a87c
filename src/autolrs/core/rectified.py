"""How large the steps of RAdam are beside Adam's: small at first, and for more than a thousand steps (Liu et al. 2020).

A miniature run is over before they have grown, and so wants ten times the LR of a whole one.
"""

from __future__ import annotations

import math

LEAST = 5.0  # [rho_t] up to here there is no rectification, and steps are momentum's


def size(step: float, beta: float) -> float:
    """[r_t] of Adam's step, by the second beta; 1 where that is so low that nothing is ever rectified.

    >>> [round(size(step, 0.999), 3) for step in (1, 27, 1333, 1e6)], size(10, 0.6)
    ([0.017, 0.103, 0.722, 1.0], 1.0)
    """
    most = 2.0 / (1.0 - beta) - 1.0
    if most <= LEAST:
        return 1.0
    seen = min(max(most - 2.0 * step * beta**step / (1.0 - beta**step), LEAST), most)
    return math.sqrt((seen - 4.0) * (seen - 2.0) * most / ((most - 4.0) * (most - 2.0) * seen))


def in_run(steps: int, beta: float | None) -> float:
    """The same a third of the way through a run, by when half of what a falling LR does is done; 1 without a beta.

    >>> round(in_run(80, 0.999), 2), in_run(80, None)
    (0.1, 1.0)
    """
    return 1.0 if beta is None else size(steps / 3, beta)
