"""The engine: a run's state is the fold of its events, and a strategy decides from that state alone.

`evolve(state, event) -> state` and `decide(state, strategy) -> Command` are pure; `run/session.py` carries the commands
out. Nothing here knows the paper: Algorithm 1 is `strategies/paper.py`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any, Protocol

from autolrs.core.schedule import Schedule
from autolrs.core.settings import Settings
from autolrs.core.types import (
    Aborted,
    Asked,
    Averaged,
    Command,
    Commit,
    Committed,
    Continued,
    Event,
    Extended,
    Failed,
    Finish,
    Finished,
    Forecast,
    Looked,
    Noted,
    Probe,
    Probed,
    Profile,
    Ranged,
    Resumed,
    Started,
    Weighed,
    decode,
    encode,
    peak_lr,
    profile_steps,
)


@dataclass(frozen=True)
class State:
    """All that decisions rest on."""

    settings: Settings
    validation: bool = False  # whether the user gave an `evaluate`
    interval: tuple[float, float] | None = None
    stage: int = 0  # searched stages committed so far
    probes: tuple[Probed | Aborted, ...] = ()  # answers of this stage, in order of arrival
    outstanding: tuple[Probe, ...] = ()  # asked and not answered
    committing: Commit | None = None  # asked and not done
    segments: Profile = ()  # the schedule so far
    previous_lr: float | None = None  # LR at the end of the last searched stage
    aim: float = 0.0  # the highest LR that the last commit was to reach, even if it was cut short
    committed_steps: int = 0
    raw_steps: int = 0  # committed, probed and aborted
    evaluations: int = 0
    weighed: bool = False  # whether one of them was made to know what it costs
    levels: tuple[float, ...] = ()  # median training losses of the committed steps, from check to check
    failures: int = 0  # times that the stretch under way was undone, and its LR lowered
    all_failures: int = 0  # and all stretches of the run
    hard: bool = False  # whether one relapsed at a lower LR too: then it is not the LR that does it
    look_every: int = 0  # committed steps between two looks, where the strategy found money for them
    looks: tuple[float, ...] = ()  # their validation losses
    best: Looked | None = None  # the look with the lowest one
    finished: str | None = None
    events: int = field(default=0, compare=False, repr=False)  # folded so far; a point to resume from is such a number

    @property
    def schedule(self) -> Schedule:
        """The schedule committed so far."""
        return Schedule(self.segments)

    @property
    def steps_left(self) -> int | None:
        """Committed steps still to go; None without `total_steps`."""
        total = self.settings.total_steps
        return None if total is None else total - self.committed_steps

    @property
    def looking(self) -> int:
        """Committed steps between two looks of `keep_best`; 0 where there are none."""
        return self.settings.look_every or self.look_every

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        values = {name: encode(value) for name, value in self.__dict__.items()}
        return {**values, "settings": encode(self.settings.to_dict())}

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> State:
        """The inverse of `to_json`."""
        decoded = decode(values)
        return cls(**{**decoded, "settings": Settings.from_dict(decoded["settings"])})


class Strategy(Protocol):
    """What decides. Implementations are stateless: every answer is a function of the state."""

    name: str

    def decide(self, state: State) -> Command:
        """What to do next."""

    def judge(self, state: State, probe: Probe, losses: list[float]) -> Forecast:
        """What a finished probe's losses promise."""

    def retained(self, state: State) -> frozenset[int]:
        """Indices of this stage's answered probes whose end states may still be needed."""


def start(settings: Settings, *, validation: bool = False, versions: dict[str, str] | None = None) -> Started:
    """The first event of a run."""
    return Started({**settings.to_dict(), "validation": validation}, versions or {})


def decide(state: State, strategy: Strategy) -> Command:
    """The next command. A commit that was asked for and never done is asked for again before anything new is decided.

    Probes in `state.outstanding` count as under way; whoever resumes a run and knows that they are not runs them again.
    """
    if state.finished is not None:
        return Finish(state.finished)
    if state.committing is not None:
        return state.committing
    if state.steps_left is not None and state.steps_left <= 0:
        return Finish("total_steps reached")
    return strategy.decide(state)


def evolve(state: State | None, event: Event) -> State:
    """The state after `event`. One that does not fit the state is a ValueError: a journal that holds it is damaged."""
    if isinstance(event, Started):
        if state is not None:
            raise ValueError("a run can only start once")
        return _begin(event)
    if isinstance(event, Continued):
        return replace(State.from_json(event.state), events=1)
    if state is None:
        raise ValueError(f"a run must begin with Started, got {type(event).__name__}")
    if isinstance(event, Resumed):
        raise ValueError("Resumed cannot be folded: use `history` to drop what it undoes")
    return replace(_apply(state, event), events=state.events + 1)


def history(events: Iterable[Event]) -> list[Event]:
    """The events that count: a Resumed undoes what came after the point it names, a Continued all before it."""
    kept: list[Event] = []
    for event in events:
        if isinstance(event, Resumed):
            if not 0 < event.at <= len(kept):
                raise ValueError(f"Resumed points at event {event.at} of {len(kept)}")
            del kept[event.at :]
        elif isinstance(event, Continued):
            kept = [event]
        else:
            kept.append(event)
    return kept


def fold(events: Iterable[Event]) -> State:
    """The state after all of `events`."""
    state: State | None = reduce(evolve, history(events), None)
    if state is None:
        raise ValueError("no events: nothing was started")
    return state


def _begin(event: Started) -> State:
    values = dict(event.settings)
    validation = bool(values.pop("validation", False))
    settings = Settings.from_dict(values)
    interval = None if settings.lr == "auto" else settings.lr
    return State(settings, validation=validation, interval=interval, events=1)


def _apply(state: State, event: Event) -> State:
    if isinstance(event, Asked):
        if isinstance(event.command, Commit):
            return replace(state, committing=event.command, look_every=event.command.look_every or state.look_every)
        return replace(state, outstanding=(*state.outstanding, event.command))
    if isinstance(event, Ranged):
        return replace(state, interval=(event.lr_min, event.lr_max), probes=())
    if isinstance(event, (Probed, Aborted)):
        return _answered(state, event)
    if isinstance(event, Committed):
        return _committed(state, event)
    if isinstance(event, Finished):
        return replace(state, finished=event.reason)
    if isinstance(event, Failed):
        again = event.level is not None and state.failures > 0
        return replace(
            state,
            committing=None,
            failures=0 if again else state.failures + 1,
            all_failures=state.all_failures + 1,
            hard=state.hard or again,
            raw_steps=state.raw_steps + event.steps,
        )
    if isinstance(event, Weighed):
        settings = state.settings.with_(evaluate_cost=event.evaluate_cost)
        return replace(state, settings=settings, evaluations=state.evaluations + 1, weighed=True)
    if isinstance(event, Averaged):
        return state if event.raw is None else replace(state, evaluations=state.evaluations + 2)
    if isinstance(event, Looked):
        lowest = math.inf if state.best is None else state.best.loss
        better = math.isfinite(event.loss) and event.loss < lowest
        looks, best = (*state.looks, event.loss), event if better else state.best
        return replace(state, evaluations=state.evaluations + 1, looks=looks, best=best)
    if isinstance(event, Extended):
        settings = state.settings.with_(total_steps=event.total_steps)
        return replace(state, settings=settings, finished=None, committing=None, outstanding=())
    if isinstance(event, Noted):
        return state
    raise ValueError(f"unknown event {event!r}")


def _answered(state: State, event: Probed | Aborted) -> State:
    left = tuple(probe for probe in state.outstanding if (probe.stage, probe.index) != (event.stage, event.index))
    if len(left) == len(state.outstanding):
        raise ValueError(f"probe {event.index} of stage {event.stage} was answered but is not outstanding")
    return replace(
        state,
        outstanding=left,
        probes=(*state.probes, event),
        raw_steps=state.raw_steps + event.steps,
        evaluations=state.evaluations + event.evaluations,
    )


def _committed(state: State, event: Committed) -> State:
    if state.committing is None:
        raise ValueError(f"stage {event.stage} was committed but no commit was asked for")
    searched = event.stage >= 0
    return replace(
        state,
        committing=None,
        failures=0,
        probes=(),
        stage=event.stage + 1,
        segments=state.segments + event.profile,
        previous_lr=event.profile[-1].lr_end if searched else state.previous_lr,
        aim=state.committing.aim or peak_lr(state.committing.profile),
        levels=state.levels + event.levels,
        committed_steps=state.committed_steps + profile_steps(event.profile),
        raw_steps=state.raw_steps + event.steps,
    )
