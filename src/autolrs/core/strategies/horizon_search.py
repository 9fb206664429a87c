"""Where a search goes: the LR of the next miniature run, and the losses above which it is given up."""

from __future__ import annotations

import math
from collections.abc import Mapping

from autolrs.core.engine import State
from autolrs.core.interval import is_sweep
from autolrs.core.strategies.horizon_answers import (
    PROMISING,
    ahead,
    best_of,
    inside,
    leans_on_usual,
    octave_of,
    responses,
    usual_octave,
    went_deep,
)
from autolrs.core.strategies.horizon_minis import noise, outcomes, start
from autolrs.core.strategies.horizon_peak import WELL
from autolrs.core.strategies.horizon_plan import is_short
from autolrs.core.strategies.horizon_ramp import landmark
from autolrs.core.strategies.horizon_rules import START, rules
from autolrs.core.types import Probed, peak_lr

LATEST_STOP = 7 / 8  # of a miniature run: later than that there is nothing to save


def next_offset(state: State) -> int | None:
    """The next LR to try, in octaves from the landmark; None when both edges are clearly worse than the best run, and
    its neighbours known.

    The first ones are tried whatever they show, so they may run at once. Where to go from there rests on all answers:
    while one is missing it is None too. So the LRs tried, and the choice, are those of a search one by one.
    """
    tried = responses(state)
    runs = [probe for probe in state.outstanding if not is_sweep(probe.profile)]
    under_way = {octave_of(peak_lr(probe.profile), landmark(state)) for probe in runs}
    for octave in first_offsets(state):
        if octave not in tried and octave not in under_way and inside(state, octave):
            return octave
    if state.outstanding:
        return None
    if not tried:  # an interval of the user's own may begin above the first ones
        return next((octave for octave in range(START + 1, 1) if inside(state, octave)), None)
    low, high = min(tried), max(tried)
    if all(math.isinf(value) for value in tried.values()):
        return low - 2 if inside(state, low - 2) else None
    # Downwards first: where all LRs do alike, a whole run wants one from the lower end of them; after a deep fall the
    # usual one, or from the upper. Upwards by two then, and where the highest is far ahead, as downwards from a usual
    # LR, and back into the gap if that was too far.
    best, deep = best_of(tried), went_deep(state)
    usual = usual_octave(state) if deep else None
    if usual is not None and usual < high and tried.get(usual, math.inf) < WELL:
        return None
    far = (deep or (best == high and ahead(tried, 2))) and inside(state, high + 2)
    below = low - 2 if _far_below(state, tried) and inside(state, low - 2) else low - 1
    down = [below] if tried[low] < PROMISING else []
    up = [high + 2 if far else high + 1] if tried[high] < (WELL if deep else PROMISING) else []
    ways = up + down if deep else down + up
    ways = [usual, *ways] if usual is not None and usual not in tried else ways
    ways += [octave for octave in (best + 1, best - 1) if low < octave < high and octave not in tried]
    return next((octave for octave in ways if inside(state, octave)), None)


def _far_below(state: State, tried: Mapping[int, float]) -> bool:
    """Whether a longer search that began at the usual LR has its bottom far below it: the lowest LR did well alone."""
    lowest, *others = sorted(tried)
    began = leans_on_usual(state.settings) and not is_short(state.settings)
    return began and lowest == best_of(tried) and min((tried[octave] for octave in others), default=0.0) > WELL


def first_offsets(state: State) -> tuple[int, ...]:
    """The LRs that are tried whatever they show, in octaves from the landmark.

    Where one is known, the usual LR and its neighbour: the landmark is the lowest loss of a ramp, which may lie
    anywhere by chance. Where it says that the usual LR is high, half-way between what both say.
    """
    first, usual = rules(state.settings).first, usual_octave(state)
    if usual is None or not leans_on_usual(state.settings):
        return first
    moved = (usual if usual < START else (usual + START) // 2) - first[0]
    return tuple(octave + moved for octave in first) if inside(state, first[0] + moved) else first


def limits(state: State, octave: int, steps: int, check: int) -> tuple[float, ...]:
    """At each check of a miniature run, the mean loss above which it is given up.

    It is clearly losing once it lies behind the best so far by a larger share of that one's progress than the share of
    steps it has left: a high LR looks worse in the middle and catches up in the decay, by less than that in all cases
    measured. What batches differ by shows nothing. The first ones have no limits, because they may run at once: what is
    stopped would depend on their order.
    """
    finished = [(value, probe.index, probe) for probe, value in outcomes(state) if isinstance(probe, Probed)]
    if octave in first_offsets(state) or not finished:
        return ()
    reached, _, best = min(finished)
    progress = start(state) - reached
    if not progress > 0:
        return ()  # there is nothing to be behind of
    shares = (check * (i + 1) / steps for i in range(len(best.checks)))
    pairs = zip(best.checks, shares, strict=True)
    chance = 3 * noise(state) / math.sqrt(check)
    return tuple(mean + max((1 - share) * progress, chance) for mean, share in pairs if share <= LATEST_STOP)
