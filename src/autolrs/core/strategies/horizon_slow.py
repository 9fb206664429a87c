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
from itertools import takewhile
from typing import NamedTuple

import numpy as np

from autolrs.core.engine import State
from autolrs.core.strategies.horizon_minis import deviation
from autolrs.core.strategies.horizon_peak import DEEP
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
BELOW_UNSEEN = 3.5  # the same where nothing was learned before: the loss of a dead network is then what it was
LEARNED = 2.0  # standard deviations of a batch by which the smoothed loss came down, or nothing was learned
BELOW_TRAINED = 3.25  # the same of a network that was trained before: what it knows breaks sooner
WARMUP = 0.15  # of the run; .05 and .3 do no better
# Beside miniature runs: they know how much lower a long run wants it for the noise of its batches, but not where it
# breaks, and where there is little noise they end far too low.
AT_LEAST_BELOW = 1.5  # octaves from where it breaks
DRAWN = 1 / 3  # of the way up; half of it costs ordinary networks on CIFAR-10, whose loss falls by .2, 2 to 5 %
SHALLOW = 0.8  # log of the factor by which their loss fell: from there on they are drawn further, and all of the way
# where it fell deep, since what falls so fast has little noise


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
    return float(slow_lrs(state)[_course(state).last])


class Course(NamedTuple):
    """Of a slow ramp: the last step before training broke, and whether anything was learned."""

    last: int
    learned: bool


def course(losses: Sequence[float], steps: int) -> Course:
    """What happened in a ramp of so many steps, which had broken where it was stopped or not finite.

    Training has broken where the smoothed loss comes to stay above its lowest by more than half of what was learned,
    and by more than batches differ.

    >>> course([2.0] * 10 + [1.0] * 10 + [9.0] * 10, 30), course([2.0] * 20 + [9.0] * 10, 30)
    (Course(last=19, learned=True), Course(last=19, learned=False))
    """
    whole = list(takewhile(math.isfinite, losses))
    begin, noise = float(np.mean(whole[: OCTAVES[0]] or [0.0])), deviation(whole[: 2 * steps // 3])
    rounding = 1e-9 * abs(begin)
    mean, weight, lowest, last = 0.0, 0.0, begin, 0
    for i, loss in enumerate(whole):
        mean += (loss - mean) / SMOOTHED
        weight += (1.0 - weight) / SMOOTHED
        lowest = min(lowest, mean / weight)
        if i < SMOOTHED or mean / weight <= lowest + max(LOST * (begin - lowest), BY_CHANCE * noise, rounding):
            last = i
    return Course(last, begin - lowest > max(LEARNED * noise, rounding))


def _course(state: State) -> Course:
    ramp = slow_ramp(state)
    assert ramp is not None
    return course(ramp.losses, slow_lrs(state).size)


def below_slow_edge(state: State) -> tuple[float, str]:
    """The peak by the slow ramp alone, and why, in words."""
    lrs, (below, since) = slow_lrs(state), _below(state)
    return slow_edge(state) * 2.0**-below, (
        f"a slow ramp of {lrs.size} steps from {lrs[0]:.3g} to {lrs[-1]:.3g}: {_broke(state)}; "
        f"{below:g} octaves below that{since}"
    )


def drawn(fall: float) -> float:
    """Which share of the way up miniature runs are drawn that brought the loss down by so much, as a logarithm.

    >>> [round(drawn(fall), 2) for fall in (0.2, 0.8, 1.3, 1.8, 4.0)]
    [0.33, 0.33, 0.67, 1.0, 1.0]
    """
    return DRAWN + (1 - DRAWN) * min(max((fall - SHALLOW) / (DEEP - SHALLOW), 0.0), 1.0)


def beside_slow_edge(state: State, found: float, fall: float) -> tuple[float, str]:
    """The peak that miniature runs have found, kept away from where the slow ramp broke, or drawn up towards what that
    tells, the further, the deeper they fell; and what was done, in words."""
    slow, highest = (slow_edge(state) * 2.0**-octaves for octaves in (_below(state)[0], AT_LEAST_BELOW))
    if found > highest:
        peak, done = highest, f"so no higher than {highest:.3g}"
    elif found > slow:
        peak, done = found, "which is far enough above"
    else:
        share = DRAWN if state.settings.trained_before else drawn(fall)
        peak, done = found * (slow / found) ** share, f"so {share:.0%} of the way up to {slow:.3g}"
    return peak, f"; in a slow ramp {_broke(state)}, {done}"


def _below(state: State) -> tuple[float, str]:
    """How many octaves below the break the peak lies, and why, in words, where it is not the usual number."""
    if not _course(state).learned:
        return BELOW_UNSEEN, ", since nothing was learned before it"
    if state.settings.trained_before:
        return BELOW_TRAINED, ", since the network was trained before"
    return BELOW, ""


def _broke(state: State) -> str:
    found = slow_edge(state)
    return f"training {'broke' if found < slow_lrs(state)[-1] else 'had not broken'} at {found:.3g}"
