"""From what miniature runs came to, to the peak LR of the whole run: their centre, and how far below."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from autolrs.core.settings import Settings

TEMPERATURE = 0.025  # of the weights, in units of the progress that the best miniature run made
PER_OCTAVE = 8  # places between two LRs that are weighted too
DESCENTS = (0.4, 1.2, 1.8)  # log of the factor by which miniature runs brought the loss down: least, usual, most
SHIFT_PER_DESCENT = 0.6  # octaves of the horizon correction; measured between the least and the most
DEEP = 1.8  # the same: from there on little else is seen than what was learned at once
WELL = 0.12  # of the progress: after a deep fall an LR that came within 1.6 times the lowest loss did well
LONGER = 0.5  # times what is usual of short runs: what longer ones want, in the middle
NEARLY_DEEP = 1.6  # the log of the factor again: from here up to a deep fall they want more and more of it
UNUSUAL = 4.0  # octaves from what is usual: 2 to 3 by chance in short searches, 5 where a network is fine-tuned


def shortfalls(losses: Mapping[int, float], start: float) -> dict[int, float]:
    """Octave -> by which share of its progress from `start` each run fell short of the best; inf if it was stopped.

    Progress counts from six times the best loss at the most. What lies above that is mostly one thing, as that targets
    are not 0 in the mean, and beside it all else that is learned would look small.

    >>> shortfalls({-3: 0.5, -2: 0.4}, 100.0) == shortfalls({-3: 0.5, -2: 0.4}, 3.0)
    True
    """
    best = min(losses.values(), default=math.inf)
    if not math.isfinite(best):
        return dict.fromkeys(losses, math.inf)
    begin = min(start, best * math.exp(DEEP)) if best > 0 else start
    progress = max(begin - best, 1e-12 * max(1.0, abs(start)))
    return {octave: (loss - best) / progress for octave, loss in losses.items()}


def weights(short: Mapping[int, float]) -> dict[int, float]:
    """Octave -> its share of the answer; 0 for all if none ended.

    What lies between two LRs has a share too, by the line between their losses, and gives it to both, to the nearer one
    more: or else the answer would depend on where between two LRs the best one happens to lie.

    >>> {octave: round(share, 2) for octave, share in weights({-3: 0.0, -2: 0.0, -1: 0.5}).items()}
    {-3: 0.5, -2: 0.5, -1: 0.0}
    """
    tried = sorted(octave for octave, value in short.items() if math.isfinite(value))
    if not tried:
        return dict.fromkeys(short, 0.0)
    between = np.linspace(tried[0], tried[-1], PER_OCTAVE * (tried[-1] - tried[0]) + 1)
    raw = np.exp(-np.interp(between, tried, [short[octave] for octave in tried]) / TEMPERATURE)
    near = {octave: np.interp(between, tried, [other == octave for other in tried]) for octave in tried}
    return {octave: float(near[octave] @ raw / raw.sum()) if octave in near else 0.0 for octave in short}


def centre(short: Mapping[int, float]) -> float:
    """The mean of the octaves, weighted by how well each did; in a flat valley that is its middle."""
    shares = weights(short)
    return float(np.array(list(shares.values())) @ np.array(list(shares)))


def half_way(found: float, usual: float) -> float:
    """Half-way from what was found to what is usual, by an octave at the most.

    Where these lie too far apart, the case is another one, as that of a network that was trained before.

    >>> half_way(0.01, 0.04), half_way(0.01, 0.1), half_way(0.01, 0.2)
    (0.02, 0.02, 0.01)
    """
    apart = math.log2(usual / found)
    return found if abs(apart) > UNUSUAL else found * 2.0 ** min(max(apart / 2, -1.0), 1.0)


def usual_of_longer(usual: float, fall: float) -> float:
    """What is usual of a longer run, by what is usual of short ones and how far miniature runs brought the loss down.

    >>> [round(usual_of_longer(0.02, fall), 4) for fall in (0.2, 1.6, 1.7, 1.8, 3.0)]
    [0.01, 0.01, 0.0141, 0.02, 0.02]
    """
    deep = min(max((fall - NEARLY_DEEP) / (DEEP - NEARLY_DEEP), 0.0), 1.0)
    return float(usual * LONGER ** (1.0 - deep))


def after_deep_fall(found: float, usual: float, shortfall: float) -> float:
    """What is usual, if it did well in miniature, where it fell short by so much; or else half-way there.

    >>> after_deep_fall(0.01, 0.04, 0.1), after_deep_fall(0.01, 0.04, 0.2)
    (0.04, 0.02)
    """
    return usual if shortfall < WELL else half_way(found, usual)


def bottom(losses: np.ndarray) -> float:
    """Where between its neighbours the lowest of three losses would be, by the parabola through them: -.5 to .5.

    >>> bottom(np.array([2.0, 1.0, 4.0]))
    -0.25
    """
    if losses.size < 3 or not np.isfinite(losses).all():
        return 0.0
    left, right = losses[0] - losses[1], losses[2] - losses[1]
    return float((left - right) / (left + right) / 2) if min(left, right) >= 0 and left + right > 0 else 0.0


def descent(start: float, best: float) -> float:
    """The log of the factor by which the best miniature run brought the loss down, as far as that was measured.

    >>> descent(2.3, 2.2), round(descent(2.3, 0.7), 2), descent(2.3, 0.01), descent(-1.0, -3.0)
    (0.4, 1.19, 1.8, 1.2)
    """
    low, _, high = DESCENTS
    return min(max(fall(start, best), low), high)


def fall(start: float, best: float) -> float:
    """That log itself; the usual one of losses that are not above 0."""
    share = left(start, best)
    return DESCENTS[1] if share is None else -math.log(share)


def fell_deep(start: float, best: float) -> bool:
    """Whether miniature runs brought the loss down to a sixth or less."""
    return fall(start, best) >= DEEP


def left(start: float, best: float) -> float | None:
    """Which share of the loss the best miniature run left; None of losses that are not above 0, or where none ended."""
    return best / start if start > 0 and 0 < best < math.inf else None


def correction(settings: Settings, start: float, best: float) -> float:
    """By how many octaves the whole run's best peak is expected to lie below the miniature runs'.

    Where these have hardly begun to learn, as of language models, they know the run's beginning only, which bears a
    higher LR than the rest; where they have come far, they are like the whole.
    """
    return settings.horizon_shift - SHIFT_PER_DESCENT * (descent(start, best) - DESCENTS[1])
