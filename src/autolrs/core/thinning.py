"""Long series for the record: few points, extremes kept."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

LIMIT = 128  # a journal of a million steps stays within a few megabytes


def thin(values: Sequence[float], limit: int = LIMIT) -> tuple[float, ...]:
    """At most `limit` of `values`, evenly spread: each stretch's lowest and highest in their order; all if few.

    >>> thin([1.0, 5.0, 2.0, 3.0], limit=2)
    (1.0, 5.0)
    """
    if len(values) <= limit:
        return tuple(float(f"{value:.9g}") for value in values)
    array = np.asarray(values, float)
    return tuple(float(f"{array[i]:.9g}") for i in kept(array, limit))


def kept(values: NDArray[np.float64], limit: int) -> list[int]:
    """Which of more than `limit` values stay: of each stretch the lowest, the highest and one that is not finite.

    >>> kept(np.array([1.0, 5.0, 2.0, np.nan, 7.0, 3.0]), 3)
    [0, 3, 4]
    """
    each = 2 if np.isfinite(values).all() else 3  # a NaN must show, and must not push the extremes beside it out
    chosen: list[int] = []
    start = 0
    for part in np.array_split(values, limit // each):
        finite = np.isfinite(part) if each == 3 else None
        if finite is None or finite.all():
            found = [part.argmin(), part.argmax()]
        else:
            good = np.flatnonzero(finite)
            extremes = [good[part[good].argmin()], good[part[good].argmax()]] if good.size else []
            found = [*extremes, np.flatnonzero(~finite)[0]]
        chosen += sorted(start + int(i) for i in found)
        start += part.size
    return chosen
