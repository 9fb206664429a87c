"""The run folder's checkpoint: one file, replaced whole. A write that fails warns and keeps the previous one; training goes on."""

from __future__ import annotations

import os
import pickle
import warnings
from pathlib import Path
from typing import Any

import torch

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
    except OSError as error:
        partial.unlink(missing_ok=True)
        _warn(run_dir / NAME, error)


def load(run_dir: str | Path) -> dict[str, Any] | None:
    """The checkpoint, or None where there is none. Only tensors and plain values are loaded, never code."""
    path = Path(run_dir) / NAME
    if not path.exists():
        return None
    try:
        state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    except (RuntimeError, EOFError, pickle.UnpicklingError, ValueError) as error:
        raise ValueError(f"{path} is not a whole checkpoint of autolrs: {error}") from error
    return state


def save_schedule(run_dir: Path, schedule: Schedule) -> None:
    """Write `schedule.json`, replaced whole."""
    partial = run_dir / "schedule.json.partial"
    try:
        schedule.save(partial)
        os.replace(partial, run_dir / "schedule.json")
    except OSError as error:
        _warn(run_dir / "schedule.json", error)


def _warn(path: Path, error: OSError) -> None:
    warnings.warn(
        f"cannot write {path}: {error.strerror or error}; the previous one is kept and training goes on",
        RuntimeWarning,
        stacklevel=4,
    )
