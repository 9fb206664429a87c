"""How strategy `horizon` came to its peak, as data: the ramp, the miniature runs, the response, the correction."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from autolrs.core.strategies import horizon_answers as answers
from autolrs.core.strategies.horizon_choice import choose, horizon_octaves
from autolrs.core.strategies.horizon_peak import centre, weights
from autolrs.core.strategies.horizon_ramp import landmark
from autolrs.core.strategies.horizon_slow import slow_edge, slow_lrs, slow_ramp
from autolrs.report.figures import Line, single
from autolrs.report.info import Array, ProbeInfo, RunInfo


@dataclass(frozen=True)
class MiniRun:
    """One miniature run. `shortfall` is the share of the best one's progress that it missed; infinite if stopped."""

    order: int
    lr: float
    losses: Line
    value: float
    shortfall: float
    weight: float  # in the choice; all sum to 1, or are 0 where the peak is not their mean
    status: str


@dataclass(frozen=True)
class SlowRamp:
    """The slow ramp of SGD: loss over LR, and the last LR before training broke; the highest, if it never did."""

    ramp: Line
    edge: float
    broke: bool


@dataclass(frozen=True)
class Choice:
    """The steps from the ramp to the peak, each an LR."""

    ramp: Line  # loss over LR
    landmark: float
    minis: tuple[MiniRun, ...]
    centre: float | None  # of the miniature runs; None where no chain of steps led to the peak
    correction: float | None  # factor for the longer horizon; None likewise
    peak: float
    plausible: tuple[float, float] | None  # peaks that the miniature runs could not tell from the best
    open_ends: tuple[bool, bool] = (False, False)  # it may reach further down, up: nothing was tried there
    words: str = ""
    too_low: bool = False  # the best LR seems to lie above the interval, so that nothing was taken off
    slow: SlowRamp | None = None

    @property
    def weighted(self) -> bool:
        """Whether the peak is a mean of the miniature runs."""
        return any(mini.weight for mini in self.minis)

    @property
    def peak_words(self) -> str:
        """What was done last to come to the peak."""
        return "peak" if self.correction is None else f"peak, x {self.correction:.3f} for the horizon"


def horizon_choice(run: RunInfo) -> Choice | None:
    """The choice of a horizon run; None where nothing was searched, or not yet."""
    state = run.searched
    if state is None or run.settings.strategy != "horizon" or not state.probes or state.committed_steps:
        return None
    mark = landmark(state)
    peak, words = choose(state)
    stage = next(stage for stage in run.stages if stage.probes)
    sweeps = [_line(probe) for probe in stage.probes if probe.sweep]
    ramp = sweeps[0] if sweeps else Line(np.zeros(0), np.zeros(0))
    slow = None
    if slow_ramp(state) and len(sweeps) > 1:
        found = slow_edge(state)
        slow = SlowRamp(sweeps[1], found, found < slow_lrs(state)[-1])
    tried = answers.responses(state)
    answered = answers.answered(state)
    octaves, shares = (centre(tried), weights(tried)) if answered else (0.0, {})
    minis = []
    for probe in single(stage):
        octave = round(math.log2(probe.lr / mark))
        losses = Line(probe.loss_steps, np.asarray(probe.losses, float))
        short = tried.get(octave, math.inf)
        share = shares.get(octave, 0.0)
        minis.append(MiniRun(probe.index, probe.lr, losses, probe.forecast, short, share, probe.status))
    middle = mark * 2.0**octaves
    correction = 2.0 ** -horizon_octaves(state) if answered else 1.0
    if not answered or not math.isclose(middle * correction, peak, rel_tol=1e-6):  # cut to the interval
        return Choice(ramp, mark, tuple(minis), None, None, peak, None, words=words, slow=slow)
    low, high, ends = _plausible({k: v for k, v in tried.items() if math.isfinite(v)})
    moved = peak / middle  # what was done to the centre is done to the interval around it
    interval = (mark * 2.0**low * moved, mark * 2.0**high * moved)
    too_low = answers.interval_too_low(state)
    return Choice(ramp, mark, tuple(minis), middle, correction, peak, interval, ends, words, too_low, slow)


def _line(sweep: ProbeInfo) -> Line:
    """Loss over LR."""
    lrs = np.array([segment.lr_start for segment in sweep.profile[: len(sweep.losses)]])
    return Line(lrs, np.asarray(sweep.losses, float))


def _plausible(tried: dict[int, float]) -> tuple[float, float, tuple[bool, bool]]:
    """Octaves between which the interpolated shortfall stays below `PROMISING`; and which ends were never left."""
    octaves = np.array(sorted(tried), float)
    short = np.array([tried[int(octave)] for octave in octaves])
    fine: Array = np.linspace(octaves[0], octaves[-1], 1000) if octaves.size > 1 else octaves
    level = np.interp(fine, octaves, short)
    best = int(np.argmin(level))
    above = np.flatnonzero(level > answers.PROMISING)
    low = above[above < best].max(initial=-1)
    high = above[above > best].min(initial=fine.size)
    return float(fine[max(low, 0)]), float(fine[min(high, fine.size - 1)]), (low < 0, high == fine.size)
