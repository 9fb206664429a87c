"""What happened in a run, gathered from its events: stages, probes, costs. Tests check these data; others draw them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autolrs.core import engine
from autolrs.core.engine import State
from autolrs.core.gp import Posterior
from autolrs.core.schedule import Schedule
from autolrs.core.settings import Settings
from autolrs.core.types import (
    Aborted,
    Asked,
    Averaged,
    Commit,
    Committed,
    Event,
    Failed,
    Metric,
    Noted,
    Probe,
    Probed,
    Profile,
    Resumed,
    Started,
    peak_lr,
    profile_steps,
)

Array = NDArray[np.float64]


@dataclass(frozen=True)
class ProbeInfo:
    """One answered probe. `forecast` is infinite where it diverged or was stopped."""

    index: int
    lr: float
    steps: int
    losses: tuple[float, ...]
    forecast: float
    status: str  # of the forecast, or "aborted"
    evaluations: int = 0
    sweep: bool = False  # it went through many LRs and stands for none

    @property
    def aborted(self) -> bool:
        """Whether it was stopped early."""
        return self.status == "aborted"


@dataclass(frozen=True)
class StageInfo:
    """One stretch of the schedule: the probes that led to it and the steps that were committed."""

    index: int  # -1: warm-up
    start: int  # committed steps before it
    profile: Profile = ()  # empty: still being searched when the journal ends
    probes: tuple[ProbeInfo, ...] = ()
    winner: int | None = None  # index of the probe whose LR was committed
    metric: Metric = "train"
    losses: tuple[float, ...] = ()  # training losses of the committed steps, perhaps thinned
    steps_run: int = 0  # fewer than `steps` where a probe's state was continued
    done: bool = False

    @property
    def steps(self) -> int:
        """Committed steps of the profile."""
        return profile_steps(self.profile)

    @property
    def forecast(self) -> float | None:
        """What the winner promised for the stage's end."""
        return next((probe.forecast for probe in self.probes if probe.index == self.winner), None)

    @property
    def final_loss(self) -> float | None:
        """What then happened: the mean training loss of the stage's last tenth."""
        # An even number: thinned losses are pairs of a stretch's lowest and highest.
        return fmean(self.losses[-max(2, len(self.losses) // 20 * 2) :]) if self.losses else None


@dataclass(frozen=True)
class Cost:
    """Where optimizer steps went."""

    committed: int = 0  # steps of the schedule
    probed: int = 0  # in probes that ran to their end
    aborted: int = 0  # in probes that were stopped
    range_test: int = 0
    reused: int = 0  # probe steps that became committed ones: counted in `probed` and in `committed`
    lost: int = 0  # recorded, then undone because the run went on from an earlier point
    evaluations: int = 0  # validation passes
    probes: int = 0
    aborted_probes: int = 0

    @property
    def raw(self) -> int:
        """All steps that were run, without those lost to a restart."""
        return self.committed - self.reused + self.probed + self.aborted + self.range_test

    @property
    def ratio(self) -> float | None:
        """All steps over committed ones; None before the first commit."""
        return self.raw / self.committed if self.committed else None


@dataclass(frozen=True)
class RunInfo:
    """A run in data."""

    settings: Settings
    validation: bool
    versions: dict[str, str]
    interval: tuple[float, float] | None
    stages: tuple[StageInfo, ...]
    notes: tuple[tuple[int, str], ...]  # committed steps at the time, and the remark
    cost: Cost
    restarts: int
    finished: str | None
    schedule: Schedule

    @property
    def changed(self) -> dict[str, Any]:
        """Settings that differ from their defaults."""
        defaults = Settings().to_dict()
        skipped = {"base_lr"} if self.settings.lr != "auto" else set()  # only the range test looks at it
        values = self.settings.to_dict().items()
        return {name: value for name, value in values if value != defaults[name] and name not in skipped}


def gather(events: Sequence[Event]) -> RunInfo:
    """The data of a run, finished or not, from all events of its journal."""
    kept = engine.history(events)
    if not kept or not isinstance(kept[0], Started):
        raise ValueError("nothing was recorded: the journal has no Started event")
    stages: list[StageInfo] = []
    notes: list[tuple[int, str]] = []
    state: State | None = None
    open_stage: StageInfo | None = None
    for event in kept:
        before, state = state, engine.evolve(state, event)
        if isinstance(event, Noted):
            notes.append((state.committed_steps, event.message))
        elif isinstance(event, Asked):
            open_stage = _asked(open_stage, event.command, state)
        elif isinstance(event, (Probed, Aborted)) and event.stage >= 0:
            assert open_stage is not None and before is not None
            asked = next(p for p in before.outstanding if (p.stage, p.index) == (event.stage, event.index))
            probe = replace(_probe(event), sweep=is_sweep(asked.profile))
            open_stage = replace(open_stage, probes=(*open_stage.probes, probe))
        elif isinstance(event, Committed):
            assert open_stage is not None
            stages.append(replace(open_stage, losses=event.losses, steps_run=event.steps, done=True))
            open_stage = None
    assert state is not None
    if open_stage is not None:
        stages.append(open_stage)
    return RunInfo(
        state.settings,
        state.validation,
        kept[0].versions,
        state.interval,
        tuple(stages),
        tuple(notes),
        _cost(kept, _lost(events)),
        sum(isinstance(event, Resumed) for event in events),
        state.finished,
        state.schedule,
    )


def is_sweep(profile: Profile) -> bool:
    """Whether a probe's profile goes through the LRs, one step each, instead of trying one."""
    return len(profile) > 2 and all(segment.steps == 1 for segment in profile)


def _asked(stage: StageInfo | None, command: Probe | Commit, state: State) -> StageInfo | None:
    if command.stage < 0 and isinstance(command, Probe):
        return stage  # the range test belongs to no stage
    stage = stage or StageInfo(command.stage, state.committed_steps)
    if isinstance(command, Probe):
        return replace(stage, metric=command.metric)
    return replace(stage, profile=command.profile, winner=_winner(stage, command))


def _winner(stage: StageInfo, command: Commit) -> int | None:
    if command.start_from is not None:
        return command.start_from
    lr = peak_lr(command.profile)
    return next((p.index for p in stage.probes if p.lr == lr and math.isfinite(p.forecast)), None)


def _probe(event: Probed | Aborted) -> ProbeInfo:
    if isinstance(event, Aborted):
        return ProbeInfo(
            event.index, event.lr, event.steps, event.losses, math.inf, "aborted", evaluations=event.evaluations
        )
    forecast = event.forecast
    return ProbeInfo(
        event.index, event.lr, event.steps, event.losses, forecast.value, forecast.status, evaluations=event.evaluations
    )


def _cost(events: Iterable[Event], lost: int) -> Cost:
    cost = Cost(lost=lost)
    for event in events:
        if isinstance(event, (Probed, Aborted)):
            cost = replace(cost, evaluations=cost.evaluations + event.evaluations)
            if event.stage < 0:
                cost = replace(cost, range_test=cost.range_test + event.steps)
            elif isinstance(event, Probed):
                cost = replace(cost, probed=cost.probed + event.steps, probes=cost.probes + 1)
            else:
                cost = replace(cost, aborted=cost.aborted + event.steps, aborted_probes=cost.aborted_probes + 1)
        elif isinstance(event, Committed):
            steps = profile_steps(event.profile)
            cost = replace(cost, committed=cost.committed + steps, reused=cost.reused + steps - event.steps)
        elif isinstance(event, Failed):
            cost = replace(cost, lost=cost.lost + event.steps)
        elif isinstance(event, Averaged) and event.raw is not None:
            cost = replace(cost, evaluations=cost.evaluations + 2)
    return cost


def _lost(events: Iterable[Event]) -> int:
    """Steps of events that a later Resumed undid."""
    kept: list[Event] = []
    lost = 0
    for event in events:
        if isinstance(event, Resumed):
            lost += sum(e.steps for e in kept[event.at :] if isinstance(e, (Probed, Aborted, Committed)))
            del kept[event.at :]
        else:
            kept.append(event)
    return lost


# Series for pictures


@dataclass(frozen=True)
class ScheduleSeries:
    """The LR over committed steps as the corners of a line, shape (m,) each."""

    steps: Array
    lrs: Array


def schedule_series(schedule: Schedule) -> ScheduleSeries:
    """Both ends of every segment.

    >>> from autolrs import Schedule, Segment
    >>> schedule_series(Schedule((Segment(10, 0.1, 0.1), Segment(10, 0.1, 0.0)))).steps.tolist()
    [0.0, 10.0, 10.0, 20.0]
    """
    steps, lrs, start = [], [], 0
    for segment in schedule.segments:
        steps += [start, start + segment.steps]
        lrs += [segment.lr_start, segment.lr_end]
        start += segment.steps
    return ScheduleSeries(np.array(steps, float), np.array(lrs, float))


@dataclass(frozen=True)
class LossSeries:
    """Committed training losses at their steps (about, where thinned), and their running mean; shape (m,) each."""

    steps: Array
    losses: Array
    smooth: Array


def loss_series(run: RunInfo, window: int = 16) -> LossSeries:
    """The losses of all committed stretches in order; values that are not finite are left out of the running mean.

    `window` is even, because thinned losses are pairs of a stretch's lowest and highest.
    """
    steps, losses = [], []
    for stage in run.stages:
        if stage.losses:
            begin = stage.start + stage.steps - stage.steps_run
            steps.append(begin + (np.arange(len(stage.losses)) + 0.5) * stage.steps_run / len(stage.losses))
            losses.append(np.asarray(stage.losses, float))
    if not losses:
        return LossSeries(np.zeros(0), np.zeros(0), np.zeros(0))
    values = np.concatenate(losses)
    half = window // 2
    finite = np.where(np.isfinite(values), values, np.nan)
    running = [_mean(finite[max(0, i - half) : i + half]) for i in range(values.size)]
    return LossSeries(np.concatenate(steps), values, np.array(running))


def _mean(values: Array) -> float:
    known = values[~np.isnan(values)]
    return float(known.mean()) if known.size else math.nan


@dataclass(frozen=True)
class PosteriorInfo:
    """What a stage knew about the LR when it chose. `mean` and `std` are None where the strategy has no posterior."""

    stage: int
    lrs: Array
    mean: Array | None
    std: Array | None
    explored: tuple[tuple[float, float], ...]  # (LR, forecast) of probes that did not diverge
    diverged: tuple[float, ...]
    winner: tuple[float, float] | None
    chosen: float | None  # the LR that was committed; no probe's own where the strategy interpolates


def posterior_info(run: RunInfo, stage: int | None = None, points: int = 300) -> PosteriorInfo | None:
    """The posterior over log LR of stage `stage`, or of the longest one; None where none has two finite forecasts."""
    searched = [s for s in run.stages if sum(math.isfinite(p.forecast) for p in _single(s)) >= 2]
    if stage is not None:
        searched = [s for s in searched if s.index == stage]
    if not searched:
        return None
    chosen = max(searched, key=lambda s: s.steps)
    explored = tuple((p.lr, p.forecast) for p in _single(chosen) if math.isfinite(p.forecast))
    diverged = tuple(p.lr for p in _single(chosen) if not math.isfinite(p.forecast))
    tried = [p.lr for p in _single(chosen)]
    lrs = np.geomspace(min(tried), max(tried), points)
    mean = std = None
    if run.settings.strategy == "paper":
        worst = max(y for _, y in explored)  # as the search has it: a diverged LR counts as the worst
        seen = [*explored, *((lr, worst) for lr in diverged)]
        settings = run.settings
        process = Posterior(
            np.log([lr for lr, _ in seen]),
            [y for _, y in seen],
            noise=settings.noise,
            length_scale=settings.length_scale,
        )
        mean, std = process(np.log(lrs))
    winner = next(((p.lr, p.forecast) for p in chosen.probes if p.index == chosen.winner), None)
    lr = peak_lr(chosen.profile) if chosen.profile else None
    return PosteriorInfo(chosen.index, lrs, mean, std, explored, diverged, winner, lr)


def _single(stage: StageInfo) -> list[ProbeInfo]:
    """The probes that tried one LR."""
    return [probe for probe in stage.probes if not probe.sweep]


def steps_by_purpose(run: RunInfo) -> list[tuple[str, int]]:
    """Where steps went, in the order of the picture; purposes without a step are left out."""
    cost = run.cost
    parts = [
        ("committed", cost.committed),
        ("probes, undone", cost.probed - cost.reused),
        ("probes, stopped early", cost.aborted),
        ("range test", cost.range_test),
        ("lost to a restart", cost.lost),
    ]
    return [(name, steps) for name, steps in parts if steps]
