"""Runs to look at, from whatever names them: a folder, a journal, events, or the object that trained."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autolrs.core.types import Event
from autolrs.report.info import RunInfo, gather
from autolrs.run import journal

RunLike = str | Path | RunInfo | Sequence[Event] | Any


@dataclass(frozen=True)
class LoadedRun:
    """A run, what to call it, and when it was recorded (seconds since 1970; None where only events were given)."""

    name: str
    info: RunInfo
    begun: float | None = None
    seconds: float | None = None  # from the first to the last record, pauses included


def load(run: str | Path) -> LoadedRun:
    """The run in a folder or of a journal file."""
    path = Path(run)
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist")
    events = journal.read(path)
    if not events:
        raise ValueError(f"{path} holds a journal without events: the run never began")
    times = journal.times(path)
    folder = path if path.is_dir() else path.parent
    return LoadedRun(folder.resolve().name or str(path), gather(events), times[0], times[-1] - times[0])


def info_of(run: RunLike) -> RunInfo:
    """What happened in `run`: a folder, a journal, a `RunInfo`, events, or an `AutoLRS` with a `run_dir`."""
    if isinstance(run, RunInfo):
        return run
    if isinstance(run, (str, Path)):
        return load(run).info
    if isinstance(run, (list, tuple)):
        return gather(run)
    folder = getattr(run, "run_dir", None)
    if folder is None:
        raise TypeError(
            f"`run` must be a run folder, a journal, events, or an AutoLRS with a `run_dir`, got {type(run).__name__}"
        )
    return load(folder).info
