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
from autolrs.core.interval import is_sweep
from autolrs.core.schedule import Schedule
from autolrs.core.settings import Settings
from autolrs.core.types import (
    Aborted,
    Asked,
    Averaged,
    Commit,
    Committed,
    Continued,
    Event,
    Failed,
    Forecast,
    Looked,
    Metric,
    Noted,
    Probe,
    Probed,
    Profile,
    Resumed,
    Started,
    Weighed,
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
    profile: Profile = ()  # as asked
    fit: Forecast | None = None  # the forecast's curve; None where it was stopped
    reason: str = ""  # why it was stopped
    every: int = 0  # steps between two validation losses; 0: `losses` are training losses, perhaps thinned

    @property
    def aborted(self) -> bool:
        """Whether it was stopped early."""
        return self.status == "aborted"

    @property
    def loss_steps(self) -> Array:
        """Steps from the probe's start at which `losses` stand (about, where thinned); shape (len(losses),)."""
        at = np.arange(1, len(self.losses) + 1)
        whole = self.every and len(self.losses) == self.steps // self.every
        return np.asarray(at * float(self.every if whole else self.steps / max(1, len(self.losses))), float)


@dataclass(frozen=True)
class StageInfo:
    """One stretch of the schedule: the probes that led to it and the steps that were committed."""

    index: int  # -1: warm-up
    start: int  # committed steps before it
    profile: Profile = ()  # empty: still being searched when the journal ends
    aim: float | None = None  # the LR that was chosen: of a warm-up that is longer than the stretch, where it leads
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
    failed: int = 0  # committed, then undone because training broke
    reused: int = 0  # probe steps that became committed ones: counted in `probed` and in `committed`
    lost: int = 0  # recorded, then undone because the run went on from an earlier point
    evaluations: int = 0  # validation passes
    probes: int = 0
    aborted_probes: int = 0

    @property
    def raw(self) -> int:
        """All steps that were run, without those lost to a restart."""
        return self.committed - self.reused + self.probed + self.aborted + self.range_test + self.failed

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
    searched: State | None = None  # as it was when the first LR was chosen from probes
    averaged: Averaged | None = None
    looks: tuple[Looked, ...] = ()  # of `keep_best`
    best: Looked | None = None

    @property
    def final_loss(self) -> float | None:
        """The mean training loss over the end of the last stretch."""
        return next((stage.final_loss for stage in reversed(self.stages) if stage.done), None)

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
    if not kept or not isinstance(events[0], Started):
        raise ValueError("nothing was recorded: the journal has no Started event")
    stages: list[StageInfo] = []
    notes: list[tuple[int, str]] = []
    state: State | None = None
    open_stage: StageInfo | None = None
    searched: State | None = None
    averaged: Averaged | None = None
    looks: list[Looked] = []
    for event in kept:
        before, state = state, engine.evolve(state, event)
        if isinstance(event, Noted):
            notes.append((state.committed_steps, event.message))
        elif isinstance(event, Continued):
            open_stage = _continued(state)
        elif isinstance(event, Asked):
            if isinstance(event.command, Commit) and state.probes:
                searched = searched or state
            open_stage = _asked(open_stage, event.command, state)
        elif isinstance(event, (Probed, Aborted)) and event.stage >= 0:
            assert open_stage is not None and before is not None
            asked = next(p for p in before.outstanding if (p.stage, p.index) == (event.stage, event.index))
            open_stage = replace(open_stage, probes=(*open_stage.probes, _probe(event, asked)))
        elif isinstance(event, Committed):
            assert open_stage is not None
            stages.append(
                replace(open_stage, profile=event.profile, losses=event.losses, steps_run=event.steps, done=True)
            )
            open_stage = None
        elif isinstance(event, Averaged):
            averaged = event
        elif isinstance(event, Looked):
            looks.append(event)
    assert state is not None
    if open_stage is not None:
        stages.append(open_stage)
    return RunInfo(
        state.settings,
        state.validation,
        events[0].versions,
        state.interval,
        tuple(stages),
        tuple(notes),
        _cost(kept, _lost(events)),
        sum(isinstance(event, Resumed) for event in events),
        state.finished,
        state.schedule,
        searched,
        averaged,
        tuple(looks),
        state.best,
    )


def _continued(state: State) -> StageInfo | None:
    """The stage under way where a run went on from a checkpoint of another journal; that one knows how it was asked."""
    if not (state.outstanding or state.committing or state.probes):
        return None
    probes = tuple(_probe(answer, None) for answer in state.probes if answer.stage >= 0)
    stage = StageInfo(state.stage, state.committed_steps, probes=probes)
    commands: list[Probe | Commit] = [*state.outstanding, *([state.committing] if state.committing else [])]
    for command in commands:
        stage = _asked(stage, command, state) or stage
    return stage


def _asked(stage: StageInfo | None, command: Probe | Commit, state: State) -> StageInfo | None:
    if command.stage < 0 and isinstance(command, Probe):
        return stage  # the range test belongs to no stage
    stage = stage or StageInfo(command.stage, state.committed_steps)
    if isinstance(command, Probe):
        return stage if is_sweep(command.profile) else replace(stage, metric=command.metric)
    aim = command.aim or peak_lr(command.profile)
    return replace(stage, profile=command.profile, aim=aim, winner=_winner(stage, command))


def _winner(stage: StageInfo, command: Commit) -> int | None:
    if command.start_from is not None:
        return command.start_from
    lr = peak_lr(command.profile)
    return next((p.index for p in stage.probes if p.lr == lr and math.isfinite(p.forecast)), None)


def _probe(event: Probed | Aborted, asked: Probe | None) -> ProbeInfo:
    common = (event.index, event.lr, event.steps, event.losses)
    profile = asked.profile if asked is not None else ()
    sweep = is_sweep(profile)
    if isinstance(event, Aborted):
        return ProbeInfo(*common, math.inf, "aborted", event.evaluations, sweep, profile, reason=event.reason)
    forecast = event.forecast
    every = asked.eval_every if asked is not None and asked.metric == "validation" else 0
    return ProbeInfo(*common, forecast.value, forecast.status, event.evaluations, sweep, profile, forecast, every=every)


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
            cost = replace(cost, failed=cost.failed + event.steps)
        elif isinstance(event, Continued):
            before = State.from_json(event.state)
            searched = before.raw_steps - before.committed_steps
            cost = replace(cost, committed=before.committed_steps, probed=searched, evaluations=before.evaluations)
        elif isinstance(event, Averaged) and event.raw is not None:
            cost = replace(cost, evaluations=cost.evaluations + 2)
        elif isinstance(event, (Looked, Weighed)):
            cost = replace(cost, evaluations=cost.evaluations + 1)
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
