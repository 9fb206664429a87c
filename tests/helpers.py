"""What several test files share: small settings, hosts that keep a record, and ways to drive them."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st

from autolrs import Segment
from autolrs.core import engine, strategies
from autolrs.core.engine import State
from autolrs.core.settings import Settings
from autolrs.core.strategies.paper import Paper
from autolrs.core.types import Asked, Commit, Committed, Event, Finish, Probe, Probed, Wait, peak_lr
from autolrs.run.journal import Journal
from autolrs.run.session import Session, drive
from autolrs.testing import SimulatedHost

SWITCHES = ("replay", "keep_winner", "abort_diverged", "bounded_forecast", "max_lr_move", "final_anneal")


def small(**values: Any) -> Settings:
    """Three stages of 100, 200 and 400 steps with four probes each: about a thousand raw steps."""
    return Settings(
        **{
            "lr": (1e-3, 1.0),
            "total_steps": 700,
            "stage_steps": 100,
            "max_stage_steps": 400,
            "n_probes": 4,
            **values,
        }
    )


# Two coordinates of a quadratic without noise, whose schedule every adapter finds alike.
TOY: dict[str, dict[str, Any]] = {
    "horizon": {"total_steps": 400, "lr": (1e-3, 10.0), "max_cost": 1.5, "proportional_steps": True},
    "paper": {
        **{"total_steps": 120, "lr": (1e-2, 1.0), "stage_steps": 40, "max_stage_steps": 80, "probe_fraction": 0.25},
        **{"n_probes": 4, "replay": True},
    },
}


class ToyHost:
    """It without any framework."""

    def __init__(self) -> None:
        self.w, self.lr = np.ones(2, np.float32), 0.1
        self.saved: list[Any] = []

    def snapshot(self) -> int:
        self.saved.append((self.w, self.lr))
        return len(self.saved) - 1

    def restore(self, token: int) -> None:
        self.w, self.lr = self.saved[token]

    def release(self, token: int) -> None:
        self.saved[token] = None

    def set_lr(self, lr: float) -> None:
        self.lr = lr

    def evaluate(self) -> float:
        raise AssertionError("there is no validation loss")

    def step(self) -> float:
        curvature = np.array([1.0, 0.05], np.float32)
        loss = float(0.5 * (curvature * self.w * self.w).sum() + 0.1)
        self.w = self.w - np.float32(self.lr) * curvature * self.w
        return loss


def toy_in_numpy(strategy: str) -> tuple[Segment, ...]:
    """The toy's schedule."""
    host = ToyHost()
    settings = Settings.make(strategy=strategy, base_lr=host.lr, **TOY[strategy])
    return drive(Session(host, settings, strategies.get(strategy)), host).schedule.segments


def assert_toys_agree(rows: Any, expected: tuple[Segment, ...]) -> None:
    """The same steps, and LRs that differ by rounding alone."""
    found = [Segment(*row) for row in rows]
    assert [s.steps for s in found] == [s.steps for s in expected]
    for a, b in zip(found, expected, strict=True):
        assert (a.lr_start, a.lr_end) == pytest.approx((b.lr_start, b.lr_end), rel=1e-3)


class RecordingHost(SimulatedHost):
    """Remembers the LR of every step."""

    def __init__(self, *args: Any, **values: Any) -> None:
        super().__init__(*args, **values)
        self.lrs: list[float] = []

    def step(self) -> float:
        self.lrs.append(self.lr)
        return super().step()


def new_session(
    settings: Settings,
    host: SimulatedHost,
    *,
    validation: bool = False,
    journal: Journal | None = None,
    read: Callable[[Any], list[float]] | None = None,
) -> tuple[Session, list[Event]]:
    """A session with the paper's strategy, whose stream is rewound if `replay` is on, and the list its events go to."""
    session = Session(
        host,
        settings,
        Paper(),
        validation=validation,
        stream=host.stream if settings.replay else None,
        journal=journal,
        read=read,
    )
    events: list[Event] = []
    session.listeners.append(events.append)
    return session, events


def run(settings: Settings, host: SimulatedHost, **options: Any) -> tuple[Session, list[Event]]:
    """A whole run."""
    session, events = new_session(settings, host, **options)
    drive(session, host)
    return session, events


def run_altered(
    settings: Settings, host: SimulatedHost, alter: Callable[[Session, float], Any], **options: Any
) -> tuple[Session, list[Event]]:
    """A whole run in which `alter(session, loss)` stands between the host and the session."""
    session, events = new_session(settings, host, **options)
    session.begin()
    while not session.done:
        session.step(alter(session, host.step()))
    return session, events


def of_kind(events: list[Event], *kinds: type) -> list[Any]:
    """The events of these types, in order."""
    return [event for event in events if isinstance(event, kinds)]


def asked(events: list[Event], kind: type) -> list[Any]:
    """The commands of one type, in order."""
    return [event.command for event in events if isinstance(event, Asked) and isinstance(event.command, kind)]


def next_command(state: State) -> Probe | Commit | Wait | Finish:
    """What a resumed run has to do next: an unanswered probe again, or what the engine decides."""
    return state.outstanding[0] if state.outstanding else engine.decide(state, Paper())


def finish_from(state: State, make_host: Callable[[], SimulatedHost]) -> tuple[State, SimulatedHost]:
    """Go on from `state` alone, on a new host brought to the committed point; data are replayed.

    A second, independent way of carrying commands out, without a session.
    """
    host = make_host()
    for lr in state.schedule.lrs():
        host.set_lr(float(lr))
        host.step()
    while not isinstance(command := next_command(state), Finish):
        assert isinstance(command, (Probe, Commit))
        if command not in state.outstanding and command != state.committing:
            state = engine.evolve(state, Asked(command))
        trial = copy.deepcopy(host) if isinstance(command, Probe) else host
        losses = []
        lrs = [segment.lr_at(i) for segment in command.profile for i in range(segment.steps)]
        for done, lr in enumerate(lrs, start=1):
            trial.set_lr(lr)
            loss = trial.step()
            if isinstance(command, Commit) or command.metric == "train":
                losses.append(loss)
            elif done % command.eval_every == 0:
                losses.append(trial.evaluate())
        if isinstance(command, Commit):
            state = engine.evolve(state, Committed(command.stage, command.profile, len(lrs), ()))
        else:
            forecast = Paper().judge(state, command, losses)
            answer = Probed(command.stage, command.index, peak_lr(command.profile), len(lrs), (), forecast)
            state = engine.evolve(state, answer)
    return state, host


@st.composite
def paper_settings(draw: st.DrawFn, **fixed: Any) -> Settings:
    """Settings of the strict algorithm, small enough to run in some milliseconds."""
    stage_steps = draw(st.integers(30, 120))
    probe_fraction = draw(st.sampled_from([0.1, 0.15, 0.25, 0.5]))
    low = 10 ** draw(st.floats(-4, -1))
    values = {
        "stage_steps": stage_steps,
        "max_stage_steps": stage_steps + draw(st.integers(0, 300)),
        "probe_fraction": max(probe_fraction, 4 / stage_steps),
        "total_steps": stage_steps + draw(st.integers(0, 600)),
        "n_probes": draw(st.integers(1, 5)),
        "kappa": draw(st.sampled_from([0.0, 1.0, 30.0, 1000.0])),
        "search": draw(st.sampled_from(["lcb", "lcb", "random", "grid"])),
        "forecast": draw(st.sampled_from(["exponential", "exponential", "last"])),
        "winner": draw(st.sampled_from(["posterior", "posterior", "raw"])),
        "first_lr": draw(st.sampled_from(["middle", "random", 0.05])),
        "eval_every": draw(st.sampled_from([1, 7, 50])),
        "lr": (low, low * 10 ** draw(st.floats(0.3, 4))),
        "seed": draw(st.integers(0, 10**6)),
        **fixed,
    }
    return Settings(**values)


@st.composite
def hosts(draw: st.DrawFn, kind: type[SimulatedHost] = SimulatedHost) -> Callable[[], SimulatedHost]:
    """A maker of equal hosts: quadratic or power law, noisy or not."""
    problem = draw(st.sampled_from(["quadratic", "power"]))
    values = {
        "seed": draw(st.integers(0, 1000)),
        "noise": draw(st.sampled_from([0.0, 0.02, 0.5])),
        "batch_noise": draw(st.sampled_from([0.0, 0.03, 0.3])),
        "offset": draw(st.sampled_from([0.0, 0.1, -5.0])),
    }
    return lambda: kind(problem=problem, **values)
