"""An `evaluate` that takes far longer than it is counted as is remarked on, once, and nothing else changes."""

from __future__ import annotations

import pytest

from autolrs.core.settings import Settings
from autolrs.core.strategies.horizon import Horizon
from autolrs.core.types import Noted
from autolrs.run import pace
from autolrs.run.session import Session, drive
from autolrs.testing.simulated import SimulatedHost


class Clock:
    """Stands still but for what it is told."""

    def __init__(self, monkeypatch):
        self.now = 0.0
        monkeypatch.setattr(pace, "perf_counter", lambda: self.now)


class Timed(SimulatedHost):
    """A step takes a tenth of a second, an `evaluate` what it is told to."""

    def __init__(self, clock, seconds):
        super().__init__(0, "quadratic")
        self._clock, self._seconds = clock, iter(seconds)
        self.last = 0.0

    def step(self):
        self._clock.now += 0.1
        return super().step()

    def evaluate(self):
        self.last = next(self._seconds, self.last)
        self._clock.now += self.last
        return super().evaluate()


def run(monkeypatch, seconds, **values):
    host = Timed(Clock(monkeypatch), seconds)
    config = Settings.make(total_steps=3000, strategy="horizon", **values)
    session = Session(host, config, Horizon(), stream=host.stream, validation=True)
    notes = []
    session.listeners.append(lambda event: notes.append(event.message) if isinstance(event, Noted) else None)
    state = drive(session, host)
    return [note for note in notes if "evaluate_cost" in note], state


def test_a_slow_evaluate_is_remarked_on_once_with_the_value_that_would_be_right(monkeypatch):
    said, state = run(monkeypatch, [5.0])
    assert said == [
        "one `evaluate` takes as long as 50 steps, but counts as 3.33 within max_cost 1.15: "
        "let it use less data, or say evaluate_cost=50"
    ]
    quiet, other = run(monkeypatch, [0.1])
    assert not quiet
    assert state.schedule == other.schedule


@pytest.mark.parametrize(
    ("seconds", "values"),
    [
        ([0.9], {}),  # far more than counted, but nobody waits for it
        ([60.0, 0.2], {}),  # the first compiles
        ([5.0], {"evaluate_cost": 20.0}),  # known
    ],
)
def test_nothing_is_said_where_there_is_nothing_to_do(monkeypatch, seconds, values):
    assert not run(monkeypatch, seconds, **values)[0]
