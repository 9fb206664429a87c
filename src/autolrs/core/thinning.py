"""Long series for the record: few points, extremes kept."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

LIMIT = 128  # a journal of a million steps stays within a few megabytes


def thin(values: Sequence[float], limit: int = LIMIT) -> tuple[float, ...]:
    """At most `limit` of `values`, evenly spread: each stretch's lowest and highest in their order; all if few.

    >>> thin([1.0, 5.0, 2.0, 3.0], limit=2)
    (1.0, 5.0)
    """
    if len(values) <= limit:
        return tuple(float(f"{value:.9g}") for value in values)
    kept: list[float] = []
    for part in np.array_split(np.asarray(values, float), limit // 2):
        low, high = sorted((int(np.argmin(part)), int(np.argmax(part))))
        kept += [float(f"{part[low]:.9g}"), float(f"{part[high]:.9g}")]
    return tuple(kept)
