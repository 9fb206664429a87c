"""Files of a parallel run that are replaced whole: the training state after the last commit, and the schedule.

`state.bin` is one line of JSON (schema, how many events of the journal it stands for, size) and then the bytes that the
host dumped. Reading it runs no code.
"""

from __future__ import annotations

import json
import os
import warnings
from contextlib import suppress
from pathlib import Path

from autolrs.core.schedule import Schedule

SCHEMA = 1
NAME = "state.bin"


def save_state(run_dir: Path, events: int, data: bytes) -> None:
    """Write the state that the run stands at after `events` events of its history."""
    header = {"autolrs_state": SCHEMA, "events": events, "size": len(data)}
    _replace(run_dir / NAME, json.dumps(header).encode() + b"\n" + data)


def load_state(run_dir: Path) -> tuple[int, bytes] | None:
    """(events, data), or None where there is none."""
    path = run_dir / NAME
    if not path.exists():
        return None
    first, _, data = path.read_bytes().partition(b"\n")
    try:
        header = json.loads(first)
        schema, events, size = header["autolrs_state"], header["events"], header["size"]
    except (ValueError, KeyError, TypeError):
        raise ValueError(f"{path} is not a state of autolrs") from None
    if schema != SCHEMA:
        raise ValueError(f"{path} has schema {schema}; this autolrs reads {SCHEMA}")
    if size != len(data):
        raise ValueError(f"{path} is damaged: {len(data)} bytes of {size}")
    return events, data


def save_schedule(run_dir: Path, schedule: Schedule) -> None:
    """Write `schedule.json`."""
    partial = run_dir / "schedule.json.partial"
    try:
        schedule.save(partial)
        os.replace(partial, run_dir / "schedule.json")
    except OSError as error:
        _give_up(run_dir / "schedule.json", partial, error)


def _replace(path: Path, data: bytes) -> None:
    partial = path.with_name(f"{path.name}.partial")
    try:
        with open(partial, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    except OSError as error:
        _give_up(path, partial, error)


def _give_up(path: Path, partial: Path, error: OSError) -> None:
    with suppress(OSError):
        partial.unlink()
    warnings.warn(
        f"cannot write {path}: {error.strerror or error}; the previous one is kept and training goes on",
        RuntimeWarning,
        stacklevel=4,
    )
