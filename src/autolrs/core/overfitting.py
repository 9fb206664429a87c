"""Whether a run ends with a state that is clearly worse than one before it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median

MIN_LOOKS = 5  # fewer do not show how much a validation loss moves by chance
RISE = 4.0  # times the usual bend late in the run; on a small validation set chance has drifted by 3.3 of it


def overfitted(looks: Sequence[float]) -> bool:
    """Whether the last validation loss lies above the lowest by more than these losses move by chance.

    Chance is measured by how much the line through three neighbours bends: of a steady rise that is little.

    >>> overfitted([0.9, 0.6, 0.5, 0.6, 0.7, 0.8]), overfitted([0.9, 0.6, 0.5, 0.54, 0.49, 0.52])
    (True, False)
    """
    finite = [loss for loss in looks if math.isfinite(loss)]
    if len(finite) < MIN_LOOKS:
        return False
    if not math.isfinite(looks[-1]):
        return True
    bends = [abs(a - 2 * b + c) for a, b, c in zip(finite, finite[1:], finite[2:], strict=False)]
    return finite[-1] - min(finite) > RISE * median(bends[len(bends) // 2 :])
