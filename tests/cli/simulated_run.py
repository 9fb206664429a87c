"""Runs for the commands to look at, made by the simulated host in a fraction of a second."""

from __future__ import annotations

from pathlib import Path

from autolrs.core import strategies
from autolrs.core.settings import Settings
from autolrs.run.journal import Journal
from autolrs.run.session import Session, drive
from autolrs.testing.simulated import SimulatedHost

SMALL = {"total_steps": 700, "lr": (1e-3, 1.0), "stage_steps": 100, "max_stage_steps": 400, "n_probes": 4}


def make_run(folder: Path, *, steps: int | None = None, preset: str = "strict", **settings) -> Session:
    """A run in `folder`; with `steps`, killed after so many raw steps."""
    config = Settings.make(preset, **{**SMALL, **settings})
    host = SimulatedHost(seed=1)
    replay = host.stream if config.replay else None
    session = Session(
        host, config, strategies.get(config.strategy), stream=replay, validation=True, journal=Journal.create(folder)
    )
    drive(session, host, steps)
    if session.done:
        session.state.schedule.save(folder / "schedule.json")
    return session
