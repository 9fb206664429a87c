"""From what miniature runs came to, to the peak LR of the whole run: their weighted centre, and how far below it."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from autolrs.core.settings import Settings
from autolrs.core.strategies.horizon_plan import MIN_MINI_STEPS, mini_steps

TEMPERATURE = 0.015  # of the weights, in units of the progress that the best miniature run made
DESCENTS = (0.4, 1.2, 1.8)  # log of the factor by which miniature runs brought the loss down: least, usual, most
SHIFT_PER_DESCENT = 0.6  # octaves of the horizon correction; measured between the least and the most
SHORTEST_SHIFT = 0.1  # octaves more where miniature runs have their least length: 20 steps are less sure


def shortfalls(losses: Mapping[int, float], start: float) -> dict[int, float]:
    """Octave -> by which share of its progress from `start` each run fell short of the best; inf if it was stopped."""
    best = min(losses.values(), default=math.inf)
    if not math.isfinite(best):
        return dict.fromkeys(losses, math.inf)
    progress = max(start - best, 1e-12 * max(1.0, abs(start)))
    return {octave: (loss - best) / progress for octave, loss in losses.items()}


def weights(short: Mapping[int, float]) -> dict[int, float]:
    """Octave -> its share of the answer; 0 for all if none ended."""
    raw = {octave: math.exp(-value / TEMPERATURE) for octave, value in short.items()}
    total = sum(raw.values())
    return {octave: weight / total if total else 0.0 for octave, weight in raw.items()}


def centre(short: Mapping[int, float]) -> float:
    """The mean of the octaves, weighted by how well each did; in a flat valley that is its middle."""
    shares = weights(short)
    return float(np.array(list(shares.values())) @ np.array(list(shares)))


def descent(start: float, best: float) -> float:
    """The log of the factor by which the best miniature run brought the loss down, as far as that was measured.

    >>> descent(2.3, 2.2), round(descent(2.3, 0.7), 2), descent(2.3, 0.01), descent(-1.0, -3.0)
    (0.4, 1.19, 1.8, 1.2)
    """
    low, usual, high = DESCENTS
    return min(max(math.log(start / best), low), high) if start > 0 and 0 < best < math.inf else usual


def correction(settings: Settings, start: float, best: float) -> float:
    """By how many octaves the whole run's best peak is expected to lie below the miniature runs'.

    Where these have hardly begun to learn, as of language models, they know the run's beginning only, which bears a
    higher LR than the rest; where they have come far, they are like the whole.
    """
    shortest = SHORTEST_SHIFT if mini_steps(settings) <= MIN_MINI_STEPS else 0.0
    return settings.horizon_shift + shortest - SHIFT_PER_DESCENT * (descent(start, best) - DESCENTS[1])
