"""What the ramp showed: where its loss was lowest, and where it broke out for good; and further ramps to that edge."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from autolrs.core.engine import State
from autolrs.core.settings import Settings
from autolrs.core.strategies.horizon_minis import far_above, noise, start, start_level
from autolrs.core.strategies.horizon_peak import bottom
from autolrs.core.strategies.horizon_plan import is_short, plan, ramp_steps
from autolrs.core.types import Aborted, Probed

FURTHER = (10, 15)  # octaves below the edge at which further ramps begin; from 5 on they come to it without momentum
BEYOND = 4  # octaves above it to which they go
UNSEEN_DIP = 1.5  # octaves from the edge to the landmark, where the ramp has no dip: as usual where it has one
SLOW = 1  # the index of the slow ramp, where the plan has one
EDGE_REACH = 5  # octaves below the edge of divergence within which the landmark lies; 0 to 3.7 in all ramps measured


def search_interval(settings: Settings) -> tuple[float, float]:
    """The user's interval, or all six decades and more."""
    return settings.range_lr if settings.lr == "auto" else settings.lr


def landmark(state: State) -> float:
    """The LR of the ramp at which the smoothed loss was lowest, within reach of the edge: where it rises for good.

    A ramp of 20 steps has its LRs more than an octave apart: the lowest loss is looked for between them. Where batches
    differ more than the loss falls in a ramp, a lower smoothed loss far from the edge is chance; so is any where it
    neither rises nor falls: the highest LR is the landmark there. Where SGD is on a plateau until it breaks, the edge
    tells more.
    """
    lrs, smoothed, last = _ramp(state)
    rises = last + 1 < lrs.size
    if not rises and start(state) - float(smoothed.min()) <= 3 * noise(state):
        return float(lrs[last])
    first = int(np.searchsorted(lrs, lrs[last] * 2.0**-EDGE_REACH)) if rises else 0
    deepest = first + int(np.argmin(smoothed[first : last + 1]))
    if rises and _in_plateau(state, float(smoothed[deepest])):
        return float(_edge(state, lrs, smoothed, last) * 2.0**-UNSEEN_DIP)
    around = np.minimum(smoothed[max(deepest - 1, 0) : deepest + 2], start_level(state))
    return float(lrs[deepest] * (lrs[1] / lrs[0]) ** bottom(around))


def _in_plateau(state: State, deepest: float) -> bool:
    """Whether a longer run of SGD has not come down by more than batches differ anywhere in its ramp.

    Smoothed losses are means over about three of them.
    """
    settings = state.settings
    fell = start_level(state) - deepest > 3 * noise(state) / math.sqrt(3)
    return settings.proportional_steps and not is_short(settings) and not fell


def edge(state: State) -> float:
    """The LR at which the smoothed loss came to stay far above where it began, in the mean of all ramps; infinite if it
    never did in the first.

    In a single ramp the few batches that it meets there move it by half an octave.
    """
    found = [first_edge(state)]
    if not math.isfinite(found[0]):
        return math.inf
    answers = sorted(further_ramps(state), key=lambda probe: probe.index)
    for probe, lrs in zip(answers, further(state), strict=False):
        if probe.losses:
            smoothed, last = _smoothed(state, probe.losses)
            found.append(_edge(state, lrs, smoothed, last))
    return float(np.exp(np.mean(np.log(found))))


def further_ramps(state: State) -> list[Probed | Aborted]:
    """Those that were answered, beside the first ramp and the slow one."""
    slow = SLOW if plan(state.settings, validation=state.validation).slow_steps else None
    return [probe for probe in state.probes[1:] if probe.sweep and probe.index != slow]


def first_edge(state: State) -> float:
    """The same by the first ramp alone."""
    lrs, smoothed, last = _ramp(state)
    return math.inf if last + 1 == lrs.size else _edge(state, lrs, smoothed, last)


def further(state: State) -> list[np.ndarray]:
    """The LRs of ramps that come to the first one's edge sooner, and so on other batches: their first LRs, which do
    nothing, are left out. Those that fit into the interval.
    """
    lrs, smoothed, last = _ramp(state)
    if last + 1 == lrs.size:
        return []
    found, octaves = _edge(state, lrs, smoothed, last), math.log2(lrs[1] / lrs[0])
    up = int(min(BEYOND, math.log2(lrs[-1] / found)) / octaves)
    downs = [round(below / octaves) for below in FURTHER]
    return [
        found * 2.0 ** (octaves * np.arange(-down, up + 1))
        for down in downs
        if up and found * 2.0 ** (-down * octaves) >= lrs[0]
    ]


def _edge(state: State, lrs: np.ndarray, smoothed: np.ndarray, last: int) -> float:
    """On the line between two LRs, which may lie an octave apart."""
    if last + 1 >= smoothed.size or not math.isfinite(smoothed[last + 1]):  # it ended there
        return float(lrs[last])
    share = (far_above(state) - smoothed[last]) / (smoothed[last + 1] - smoothed[last])
    return float(lrs[last] * (lrs[last + 1] / lrs[last]) ** min(max(share, 0.0), 1.0))


def _ramp(state: State) -> tuple[np.ndarray, np.ndarray, int]:
    """The first ramp's LRs, its smoothed losses, and the last one that was not far above where it began."""
    lrs = np.geomspace(*search_interval(state.settings), ramp_steps(state.settings))
    return lrs, *_smoothed(state, state.probes[0].losses)


def _smoothed(state: State, losses: Sequence[float]) -> tuple[np.ndarray, int]:
    keep = max(2.0, ramp_steps(state.settings) / 20)
    smoothed, mean, weight = [], 0.0, 0.0
    for loss in np.where(np.isfinite(losses), losses, np.inf):
        mean += (loss - mean) / keep if math.isfinite(mean) else 0.0
        weight += (1.0 - weight) / keep
        smoothed.append(mean / weight)
    limit = far_above(state)
    return np.array(smoothed), max((i for i, loss in enumerate(smoothed) if loss <= limit), default=0)
