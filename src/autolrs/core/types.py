"""Segments, commands, events and forecasts: the vocabulary that every layer speaks.

All are frozen dataclasses which `encode` turns into plain JSON values and `decode` turns back. Nothing here decides or
acts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any, Literal

Metric = Literal["train", "validation"]
Status = Literal["ok", "flat", "rising", "diverged", "too_short"]


@dataclass(frozen=True, slots=True)
class Segment:
    """`steps` optimizer steps during which the LR moves linearly; constant when both ends are equal.

    Step `i` (from 0) runs at `lr_start + (lr_end - lr_start) * i / steps`: the next segment begins at `lr_end`, so that
    contiguous segments join without repeating a value and a decay to 0 never wastes a step at LR 0.

    >>> Segment(4, 0.0, 1.0).lr_at(2)
    0.5
    """

    steps: int
    lr_start: float
    lr_end: float

    def __post_init__(self) -> None:
        if self.steps < 1:
            raise ValueError(f"`steps` of a segment must be at least 1, got {self.steps}")
        for name in ("lr_start", "lr_end"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                raise ValueError(f"`{name}` must be finite and not negative, got {value}")

    def lr_at(self, step: int) -> float:
        """LR of the segment's step `step`, counted from 0."""
        if self.lr_start == self.lr_end:
            return self.lr_start
        return self.lr_start + (self.lr_end - self.lr_start) * (step / self.steps)


Profile = tuple[Segment, ...]


def profile_steps(profile: Profile) -> int:
    """Number of optimizer steps of a profile."""
    return sum(segment.steps for segment in profile)


def peak_lr(profile: Profile) -> float:
    """Highest LR a profile reaches: the LR that a probe stands for."""
    return max(max(segment.lr_start, segment.lr_end) for segment in profile)


def constant(steps: int, lr: float) -> Profile:
    """The profile of a paper probe or stage: one LR throughout."""
    return (Segment(steps, lr, lr),)


def cut(profile: Profile, begin: int, end: int) -> Profile:
    """The steps `begin` to `end` (not included) of a profile.

    >>> cut((Segment(4, 0.0, 1.0), Segment(4, 1.0, 0.0)), 2, 6)
    (Segment(steps=2, lr_start=0.5, lr_end=1.0), Segment(steps=2, lr_start=1.0, lr_end=0.5))
    """
    pieces: list[Segment] = []
    offset = 0
    for segment in profile:
        a, b = max(begin - offset, 0), min(end - offset, segment.steps)
        if a < b:
            pieces.append(Segment(b - a, segment.lr_at(a), segment.lr_at(b)))
        offset += segment.steps
    return tuple(pieces)


def locate(profile: Profile, step: int) -> tuple[Segment, int]:
    """The segment that holds step `step` of `profile`, and the step's place in it."""
    for segment in profile:
        if step < segment.steps:
            return segment, step
        step -= segment.steps
    raise IndexError(f"step lies {step} past the end of the profile")


@dataclass(frozen=True, slots=True)
class Forecast:
    """What a probe promises: the loss `value` after the horizon under `amplitude * exp(rate * t) + asymptote`.

    `status` says how far to trust it: `ok`; `flat` (no change to fit); `rising`; `too_short` (fewer than 4 losses: the
    last one stands); `diverged` (a loss was not finite: `value` is infinite and the LR must never win).
    """

    value: float
    amplitude: float
    rate: float
    asymptote: float
    status: Status


# Commands: what the engine asks of the session, one per stretch of steps, never per step.


@dataclass(frozen=True, slots=True)
class Probe:
    """Train along `profile` from the stage's snapshot (or probe `start_from`'s kept end state), then report the losses.

    With metric `validation` the loss is evaluated every `eval_every` steps. With `check_every` > 0 the losses are read
    that often and the probe is aborted once they diverge, or once their mean since the last check is above the check's
    own of `limits`.
    """

    stage: int
    index: int
    profile: Profile
    metric: Metric = "train"
    eval_every: int = 0
    check_every: int = 0
    start_from: int | None = None
    limits: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Commit:
    """Train along `profile` for good. With `start_from` its first steps were taken by that kept probe."""

    stage: int
    profile: Profile
    start_from: int | None = None
    note: str = ""
    guarded: bool = False  # undo it if a loss is not finite, or training relapses, and decide again
    look_every: int = 0  # committed steps between two looks at the validation loss, from here on; 0: as before
    check_every: int = 0  # steps between two checks whether training has relapsed, where it is guarded; 0: none
    aim: float = 0.0  # the highest LR of the plan that this is the beginning of; 0: the profile's own


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing to ask until an outstanding probe is answered."""


@dataclass(frozen=True, slots=True)
class Finish:
    """The run is over."""

    reason: str


Command = Probe | Commit | Wait | Finish


# Events: what happened. A run's state is the fold of its events; numbers that decisions rest on are in them.


@dataclass(frozen=True, slots=True)
class Started:
    """The run began; `settings` as a plain dictionary, `versions` of what it ran on."""

    settings: dict[str, Any]
    versions: dict[str, str]


@dataclass(frozen=True, slots=True)
class Asked:
    """The engine decided; recorded before it is carried out, so that a resumed run repeats and does not remake it."""

    command: Probe | Commit


@dataclass(frozen=True, slots=True)
class Ranged:
    """The LR range test chose the search interval."""

    lr_min: float
    lr_max: float
    note: str = ""


@dataclass(frozen=True, slots=True)
class Probed:
    """A probe ran to its end. `losses` may be thinned for the record; `forecast` was made from all of them.

    `checks` are the mean training losses from each check to the next, which later probes may be held against. A `sweep`
    went through many LRs, one step each, and stands for none.
    """

    stage: int
    index: int
    lr: float
    steps: int
    losses: tuple[float, ...]
    forecast: Forecast
    evaluations: int = 0
    checks: tuple[float, ...] = ()
    sweep: bool = False


@dataclass(frozen=True, slots=True)
class Aborted:
    """A probe was stopped early."""

    stage: int
    index: int
    lr: float
    steps: int
    losses: tuple[float, ...]
    reason: str
    evaluations: int = 0
    sweep: bool = False


@dataclass(frozen=True, slots=True)
class Committed:
    """A stretch was trained for good. `steps` were run now: fewer than the profile's when it went on from a probe.

    `levels` are the median training losses from each check to the next, which later ones are held against.
    """

    stage: int
    profile: Profile
    steps: int
    losses: tuple[float, ...]
    levels: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Failed:
    """A guarded stretch was undone: a loss was not finite or, where there is a `level`, it had come back up to that."""

    stage: int
    lr: float
    steps: int
    level: float | None = None


@dataclass(frozen=True, slots=True)
class Weighed:
    """One `evaluate` before any training, its `loss`, and how many steps it is worth by the data that it looked at."""

    evaluate_cost: float
    loss: float


@dataclass(frozen=True, slots=True)
class Averaged:
    """At the end the model was given its averaged weights, or not; both validation losses, where they were measured."""

    used: bool
    raw: float | None = None
    averaged: float | None = None


@dataclass(frozen=True, slots=True)
class Looked:
    """`keep_best` took the validation loss after `step` committed steps, those of the stretch under way included."""

    step: int
    loss: float


@dataclass(frozen=True, slots=True)
class Extended:
    """The budget was changed to `total_steps`; a run that was over goes on."""

    total_steps: int


@dataclass(frozen=True, slots=True)
class Noted:
    """Something a reader of the journal should know; no decision rests on it."""

    message: str


@dataclass(frozen=True, slots=True)
class Resumed:
    """The run went on from an earlier point: only the first `at` events before this one still count."""

    at: int


@dataclass(frozen=True, slots=True)
class Continued:
    """The run went on from a checkpoint unknown to this journal; `state` is the engine's there, as plain values."""

    state: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Finished:
    """The run reached its end."""

    reason: str


Event = (
    Started
    | Asked
    | Ranged
    | Probed
    | Aborted
    | Committed
    | Failed
    | Weighed
    | Averaged
    | Looked
    | Extended
    | Noted
    | Resumed
    | Continued
    | Finished
)

_KINDS: dict[str, type] = {
    kind.__name__: kind
    for kind in (
        *(Segment, Forecast, Probe, Commit, Wait, Finish),
        *(
            Started,
            Asked,
            Ranged,
            Probed,
            Aborted,
            Committed,
            Failed,
            Weighed,
            Averaged,
            Looked,
            Extended,
            Noted,
            Resumed,
            Continued,
            Finished,
        ),
    )
}


def encode(value: Any) -> Any:
    """Plain JSON values for any of the types above; non-finite floats become tagged strings, since JSON has none.

    >>> encode(Segment(10, 0.1, 0.1))
    {'kind': 'Segment', 'steps': 10, 'lr_start': 0.1, 'lr_end': 0.1}
    """
    if isinstance(value, float):
        return value if math.isfinite(value) else {"kind": "float", "value": repr(value)}
    if isinstance(value, (list, tuple)):
        return [encode(item) for item in value]
    if isinstance(value, dict):
        return {key: encode(item) for key, item in value.items()}
    if isinstance(value, Continued):  # its state is plain values already
        return {"kind": "Continued", "state": value.state}
    if type(value).__name__ in _KINDS:
        body = {field.name: encode(getattr(value, field.name)) for field in fields(value)}
        return {"kind": type(value).__name__, **body}
    return value


def decode(value: Any) -> Any:
    """The inverse of `encode`; lists come back as tuples.

    >>> decode(encode(Finish("done")))
    Finish(reason='done')
    """
    if isinstance(value, list):
        return tuple(decode(item) for item in value)
    if isinstance(value, dict):
        kind = value.get("kind")
        if kind == "Continued":
            return Continued(value["state"])
        body = {key: decode(item) for key, item in value.items() if key != "kind"}
        if kind is None:
            return body
        if kind == "float":
            return float(body["value"])
        if kind not in _KINDS:
            raise ValueError(f"unknown kind {kind!r}")
        return _KINDS[kind](**body)
    return value
