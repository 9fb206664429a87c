"""The slow ramp of SGD: where does training break that was warmed up?

What limits a run of SGD on a small task is where it breaks: its best peak lies an octave or two below. Miniature runs
of 20 steps, of which a short run has money for two or three, do not see it. The first ramp knows it within a factor of
ten: it goes through more than an octave a step, and with momentum training breaks some steps later. So a second one,
from far below that edge and some six steps an octave, trains the network on the way, as the warm-up of the run will.
Up to 1000 steps it alone tells the peak; in longer runs of networks without norms it has a say beside miniature runs.
Why, with measurements: docs/research-log.md, "The slow ramp".
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from autolrs.core.engine import State
from autolrs.core.strategies.horizon_minis import deviation
from autolrs.core.strategies.horizon_plan import plan
from autolrs.core.strategies.horizon_ramp import SLOW, first_edge, search_interval
from autolrs.core.types import Aborted, Probed

STEPS_AN_OCTAVE = 6
OCTAVES = (6, 10)  # that it begins below the first ramp's edge; the more, the more steps it has
BEYOND = 0.5  # octaves above that edge to which it goes
SMOOTHED = 4.0  # losses: the time constant
LOST = 0.5  # of what was learned: where the loss stays above its lowest by more, training has broken
BY_CHANCE = 4.0  # standard deviations from batch to batch, likewise
BELOW = 2.25  # octaves from where it breaks to the peak: 2 does as well in the mean, and worse where that is too high
BELOW_TRAINED = 3.25  # the same of a network that was trained before: what it knows breaks sooner
WARMUP = 0.15  # of the run; .05 and .3 do no better
# Beside miniature runs: they know how much lower a long run wants it for the noise of its batches, but not where it
# breaks, and where there is little noise they end far too low.
AT_LEAST_BELOW = 1.5  # octaves from where it breaks
DRAWN = 1 / 3  # of the way up; half of it costs ordinary networks on CIFAR-10 2 to 5 %


def slow_lrs(state: State) -> np.ndarray:
    """The LRs of its steps, by where the first ramp broke (or how far it went)."""
    low, high = search_interval(state.settings)
    steps = plan(state.settings, validation=state.validation).slow_steps
    found = min(first_edge(state), high)
    below = min(max(steps / STEPS_AN_OCTAVE, OCTAVES[0]), OCTAVES[1])
    return np.geomspace(max(found * 2.0**-below, low), min(found * 2.0**BEYOND, high), steps)


def slow_ramp(state: State) -> Probed | Aborted | None:
    """What it came to, if it was run."""
    if not plan(state.settings, validation=state.validation).slow_steps:
        return None
    return next((probe for probe in state.probes if probe.sweep and probe.index == SLOW), None)


def slow_edge(state: State) -> float:
    """The last LR before training broke in it; the highest one if it never did."""
    ramp, lrs = slow_ramp(state), slow_lrs(state)
    assert ramp is not None
    return float(lrs[last_before_break(ramp.losses, lrs.size)])


def last_before_break(losses: Sequence[float], steps: int) -> int:
    """The last step before the smoothed loss came to stay above its lowest by more than half of what was learned, and
    by more than batches differ; of a ramp of so many steps, which had broken where it was stopped.

    >>> last_before_break([2.0] * 10 + [1.0] * 10 + [9.0] * 10, 30), last_before_break([2.0] * 10 + [1.0] * 20, 30)
    (19, 29)
    """
    seen = np.full(steps, math.inf)
    seen[: len(losses)] = losses
    begin = float(np.mean(seen[: OCTAVES[0]]))
    chance = max(BY_CHANCE * deviation(seen[: 2 * steps // 3]), 1e-9 * abs(begin))  # of no noise, rounding
    mean, weight, lowest, last = 0.0, 0.0, begin, 0
    for i, loss in enumerate(seen):
        mean += (loss - mean) / SMOOTHED if math.isfinite(mean) else 0.0
        weight += (1.0 - weight) / SMOOTHED
        lowest = min(lowest, mean / weight)
        if i < SMOOTHED or mean / weight <= lowest + max(LOST * (begin - lowest), chance):
            last = i
    return last


def below_slow_edge(state: State) -> tuple[float, str]:
    """The peak by the slow ramp alone, and why, in words."""
    lrs, (low, high), below = slow_lrs(state), search_interval(state.settings), _below(state)
    peak = min(max(slow_edge(state) * 2.0**-below, low), high)
    trained = ", since the network was trained before" if below != BELOW else ""
    return peak, (
        f"a slow ramp of {lrs.size} steps from {lrs[0]:.3g} to {lrs[-1]:.3g}: {_broke(state)}; "
        f"{below:g} octaves below that{trained}: peak {peak:.4g}"
    )


def beside_slow_edge(state: State, found: float) -> tuple[float, str]:
    """The peak that miniature runs have found, kept away from where the slow ramp broke, or drawn up towards what that
    tells; and what was done, in words."""
    slow, highest = (slow_edge(state) * 2.0**-octaves for octaves in (_below(state), AT_LEAST_BELOW))
    if found > highest:
        peak, done = highest, f"so no higher than {highest:.3g}"
    elif found > slow:
        peak, done = found, "which is far enough above"
    else:
        peak, done = found * (slow / found) ** DRAWN, f"so a third of the way up to {slow:.3g}"
    return peak, f"; in a slow ramp {_broke(state)}, {done}"


def _below(state: State) -> float:
    return BELOW_TRAINED if state.settings.trained_before else BELOW


def _broke(state: State) -> str:
    found = slow_edge(state)
    return f"training {'broke' if found < slow_lrs(state)[-1] else 'had not broken'} at {found:.3g}"
