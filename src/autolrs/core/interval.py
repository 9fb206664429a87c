"""The search interval from an LR range test: where the loss decreases as the LR grows (Section 2, Smith 2017)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np

from autolrs.core.smoothing import smooth
from autolrs.core.types import Profile, Ranged, Segment

MIN_DECADES = 2.0  # the paper's own intervals span two to three decades


def ramp(steps: int, interval: tuple[float, float]) -> Profile:
    """The range test's profile: `steps` steps at LRs that grow geometrically from end to end of `interval`."""
    return steps_at(np.geomspace(*interval, steps))


def steps_at(lrs: Iterable[float]) -> Profile:
    """A step at each of these LRs."""
    return tuple(Segment(1, float(lr), float(lr)) for lr in lrs)


def is_sweep(profile: Profile) -> bool:
    """Whether a probe's profile goes through the LRs as `ramp` does, one step each, instead of trying one."""
    return len(profile) > 2 and all(segment.steps == 1 for segment in profile)


def conclude(lrs: Sequence[float], losses: Sequence[float], base_lr: float | None) -> Ranged:
    """The range test's verdict; where the loss never fell, three decades around the optimizer's LR, and a note."""
    found = find_interval(lrs, losses)
    if found is not None:
        return Ranged(*found, f"range test over {len(losses)} steps")
    lr, what = 1e-3, "1e-3"
    if base_lr is not None and 0 < base_lr < math.inf:
        lr, what = base_lr, f"the optimizer's LR {base_lr:.4g}"
    return Ranged(
        lr / 100,
        lr * 10,
        f"the range test saw no fall of the loss in {len(losses)} steps: taking three decades around {what}",
    )


def find_interval(lrs: Sequence[float], losses: Sequence[float]) -> tuple[float, float] | None:
    """(min, max) over which the loss fell as the LR grew, at least two decades wide; None where it never fell.

    max is the LR at the lowest smoothed loss before the loss blows up, min the one where a twentieth of the whole fall
    was done.

    >>> lrs = np.geomspace(1e-6, 1.0, 60)
    >>> low, high = find_interval(lrs, 2.0 - np.clip(np.log10(lrs) + 4, 0, 2) / 2)
    >>> low < 1e-3 and 5e-3 < high < 5e-2
    True
    """
    y = np.asarray(losses, float)
    finite = np.isfinite(y)
    n = y.size if finite.all() else int(np.argmin(finite))
    # Once the loss stands far above its start it only tells how an exploded network looks.
    start = np.median(y[: min(n, 5)]) if n else math.nan
    spread = np.ptp(y[: max(1, n // 4)]) if n else math.nan
    exploded = np.flatnonzero(y[:n] > start + max(4 * spread, abs(start)))
    n = int(exploded[0]) if exploded.size else n
    if n < 8:
        return None
    smoothed = smooth(y[:n], pieces=12, outlier_fraction=0.0)
    best = int(np.argmin(smoothed))
    top = float(np.mean(smoothed[: n // 8]))  # one end of a spline alone is the noisiest place on it
    fall = top - smoothed[best]
    noise = float(np.std(y[:n] - smoothed))
    # The lowest of a dozen noisy pieces lies below the rest anyway: five standard errors pass for a fall, two do not.
    if fall <= 5 * noise / math.sqrt(max(1, n // 12)) or best == 0:
        return None
    above = np.flatnonzero(smoothed[:best] > top - 0.05 * fall)  # its last one, for a dip of noise comes earlier
    begin = int(above[-1]) if above.size else 0
    high = float(lrs[best])
    return min(float(lrs[begin]), high / 10**MIN_DECADES), high
