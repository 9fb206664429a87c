"""The run folder's checkpoint: one file, replaced whole. A write that fails warns and keeps the previous one."""

from __future__ import annotations

import os
import pickle
import warnings
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from autolrs.core.engine import State
from autolrs.core.schedule import Schedule

NAME = "checkpoint.pt"


def save(run_dir: Path, state: dict[str, Any]) -> None:
    """Write to a temporary name, fsync, rename: a kill at any moment leaves the old file or the new one."""
    partial = run_dir / f"{NAME}.partial"
    try:
        with open(partial, "wb") as file:
            torch.save(state, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, run_dir / NAME)
    except (OSError, RuntimeError) as error:  # torch's writer turns a full disk into a RuntimeError now and then
        _give_up(run_dir / NAME, partial, error)


def load(run_dir: str | Path) -> dict[str, Any] | None:
    """The checkpoint, or None where there is none. Only tensors and plain values are loaded, never code."""
    path = Path(run_dir) / NAME
    if not path.exists():
        return None
    try:
        state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    except (RuntimeError, OSError, EOFError, pickle.UnpicklingError, ValueError) as error:
        raise ValueError(f"{path} is not a whole checkpoint of autolrs: {error}") from error
    return state


def save_schedule(run_dir: Path, schedule: Schedule) -> None:
    """Write `schedule.json`, replaced whole."""
    partial = run_dir / "schedule.json.partial"
    try:
        schedule.save(partial)
        os.replace(partial, run_dir / "schedule.json")
    except OSError as error:
        _give_up(run_dir / "schedule.json", partial, error)


def _give_up(path: Path, partial: Path, error: Exception) -> None:
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
