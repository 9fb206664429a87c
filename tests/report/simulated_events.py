"""Events of simulated runs, for the report tests."""

from __future__ import annotations

from autolrs.core import strategies
from autolrs.core.settings import Settings
from autolrs.core.types import Event
from autolrs.run.session import Session, drive
from autolrs.testing.simulated import SimulatedHost

SMALL = {"total_steps": 700, "lr": (1e-3, 1.0), "stage_steps": 100, "max_stage_steps": 400, "n_probes": 5}


def events_of(
    preset: str = "strict",
    steps: int | None = None,
    *,
    validation: bool = False,
    seed: int = 2,
    offset: float = 0.1,
    **settings,
) -> list[Event]:
    """All events of a run; with `steps`, killed after so many raw steps. A large `offset` drowns progress in noise."""
    host, config = SimulatedHost(seed=seed, offset=offset), Settings.make(preset, **{**SMALL, **settings})
    stream = host.stream if config.replay else None
    session = Session(host, config, strategies.get(config.strategy), stream=stream, validation=validation)
    events: list[Event] = []
    session.listeners.append(events.append)
    drive(session, host, steps)
    return events
