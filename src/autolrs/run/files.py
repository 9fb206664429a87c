"""What all adapters do with a run folder: replace a file whole, survive a full disk, refuse another run's settings."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

from autolrs.core.engine import State
from autolrs.core.schedule import Schedule


def replace_whole(path: Path, write: Callable[[BinaryIO], Any]) -> None:
    """Write to a temporary name, fsync, rename: a kill leaves the old file or the new one. A failure only warns."""
    partial = path.with_name(f"{path.name}.partial")
    try:
        with open(partial, "wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    except OSError as error:
        give_up(path, partial, error)


def save_schedule(run_dir: Path, schedule: Schedule) -> None:
    """Write `schedule.json`, replaced whole."""
    partial = run_dir / "schedule.json.partial"
    try:
        schedule.save(partial)
        os.replace(partial, run_dir / "schedule.json")
    except OSError as error:
        give_up(run_dir / "schedule.json", partial, error)


def give_up(path: Path, partial: Path, error: Exception) -> None:
    """A file could not be written: remove what there is of it, and say so."""
    with suppress(OSError):
        partial.unlink()
    reason = getattr(error, "strerror", None) or error
    warnings.warn(
        f"cannot write {path}: {reason}; the previous one is kept and training goes on",
        RuntimeWarning,
        stacklevel=4,
    )


def check_same_run(where: str, recorded: State, settings: dict[str, Any], validation: bool) -> None:
    """Raise an error that names the first setting in which a recorded run differs from what is given now."""
    for name, value in settings.items():
        if not hasattr(recorded.settings, name):
            raise TypeError(f"unknown setting `{name}`")
        there = getattr(recorded.settings, name)
        if there != (tuple(value) if isinstance(value, list) else value):
            raise ValueError(f"`{name}` is {there!r} in {where} and {value!r} here: a run goes on as it began")
    if recorded.validation != validation:
        was = "" if recorded.validation else "not "
        raise ValueError(f"the run in {where} was {was}given `evaluate`: give the same now")
