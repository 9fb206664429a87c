"""The run's record: `journal.jsonl`, append-only, one event a line, schema-versioned, fsynced where a stretch ends.

A torn last line (a kill in the middle of a write) is tolerated; anything else wrong is a `JournalError` that names the
line. A full disk does not stop a training: lines wait in memory, a warning says so, and the next append writes them.
"""

from __future__ import annotations

import json
import os
import re
import time
import warnings
import weakref
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from autolrs.core.types import Asked, Event, Finished, Noted, Started, decode, encode

SCHEMA = 1
NAME = "journal.jsonl"
LOCK = "journal.lock"


class JournalError(ValueError):
    """A journal that cannot be read, and why."""


class Journal:
    """Writer of one run's journal."""

    def __init__(self, path: Path, size: int = 0) -> None:
        """Use `create` or `reopen`. `size` is the length in bytes of what is known to be whole."""
        self.path, self._size, self._waiting = path, size, b""
        self._warned = False
        lock = _lock(path.parent)
        self._unlock: Callable[[], Any] = (lambda: None) if lock is None else weakref.finalize(self, os.close, lock)

    @classmethod
    def create(cls, run_dir: str | Path) -> Journal:
        """A new journal in `run_dir`, which is made if need be and must not hold a run already."""
        folder = Path(run_dir)
        path = folder / NAME
        header = _line({"autolrs_journal": SCHEMA, "time": round(time.time(), 3)})
        if path.is_file() and path.stat().st_size:
            raise FileExistsError(
                f"{folder} already holds a run: continue it with `autolrs.resume`, or choose another `run_dir`"
            )
        try:
            folder.mkdir(parents=True, exist_ok=True)
            path.write_bytes(header)
        except OSError as error:
            raise OSError(
                error.errno, f"`run_dir` must be a folder that can be written to, got {folder}: {error.strerror}"
            ) from error
        return cls(path, len(header))

    @classmethod
    def reopen(cls, run_dir: str | Path) -> tuple[Journal, list[Event]]:
        """The journal in `run_dir` for going on, and its events; a torn last line is cut off."""
        path = Path(run_dir) / NAME
        events, size = _read(path)
        return cls(path, size), events

    def append(self, event: Event) -> None:
        """Write one event. Decisions and remarks are flushed; what ends a stretch is on the disk when this returns."""
        self._waiting += _line({"time": round(time.time(), 3), "event": encode(event)})
        try:
            with open(self.path, "r+b") as file:
                file.truncate(self._size)  # whatever an earlier failure left half-written
                file.seek(self._size)
                file.write(self._waiting)
                file.flush()
                if not isinstance(event, (Asked, Noted)):
                    os.fsync(file.fileno())
        except OSError as error:
            if not self._warned:
                warnings.warn(
                    f"cannot write {self.path}: {error.strerror or error}; training goes on, "
                    "and the journal is written as soon as that is possible",
                    RuntimeWarning,
                    stacklevel=2,
                )
            self._warned = True
            return
        self._size += len(self._waiting)
        self._waiting, self._warned = b"", False
        if isinstance(event, Finished):
            self._unlock()  # whoever goes on with it, longer, may be another process


def _lock(folder: Path) -> int | None:
    """Hold the run for this process; the system lets go of it when the process ends, however it ends.

    A file of its own: closing any handle on a locked file lets go of it, and the journal is opened for every event.
    """
    try:
        import fcntl
    except ImportError:  # not on Windows
        return None
    try:
        handle = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError:
        return None  # a folder that cannot be written to is the journal's to report
    try:
        fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        owner = os.read(handle, 32).decode(errors="replace") or "unknown"
        os.close(handle)
        raise JournalError(f"another process (pid {owner}) writes the run in {folder}: end it first") from None
    with suppress(OSError):  # a full disk
        os.truncate(handle, 0)
        os.write(handle, str(os.getpid()).encode())
    return handle


def read(run_dir: str | Path) -> list[Event]:
    """All events in a run folder's journal (or of a journal file), in the order of writing."""
    path = Path(run_dir)
    return _read(path / NAME if path.is_dir() else path)[0]


def times(run_dir: str | Path) -> list[float]:
    """When the journal and each of its whole lines were written, in seconds since 1970; for `read`'s files only."""
    path = Path(run_dir)
    lines = (path / NAME if path.is_dir() else path).read_bytes().split(b"\n")[:-1]
    found = (re.search(rb'"time":([0-9.]+)', line) for line in lines)
    return [float(match[1]) for match in found if match]


def discard_empty(run_dir: str | Path) -> bool:
    """Whether a run folder holds no event; what a kill in the first moment left there (a header) is removed then."""
    path = Path(run_dir) / NAME
    if not path.exists():
        return True
    whole = path.read_bytes().split(b"\n")[:-1]
    if len(whole) > 1:
        return False
    path.unlink()
    return True


def _line(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), allow_nan=False).encode() + b"\n"


def _read(path: Path) -> tuple[list[Event], int]:
    """The events, and the size in bytes of the whole lines they stand in."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise JournalError(f"{path.parent} holds no run: {NAME} is missing") from None
    lines = data.split(b"\n")
    whole, tail = lines[:-1], lines[-1]
    if not whole:
        what = "is empty" if not tail else "has no whole line"
        raise JournalError(f"{path} {what}: nothing was recorded")
    _check_header(path, whole[0])
    events: list[Event] = []
    for number, line in enumerate(whole[1:], start=2):
        try:
            event = decode(json.loads(line)["event"])
            if not isinstance(event, Event):
                raise ValueError(f"not an event: {type(event).__name__}")
            events.append(event)
        except (ValueError, KeyError, TypeError) as error:
            raise JournalError(f"{path}, line {number}: not a journal event ({error})") from None
    if events and not isinstance(events[0], Started):
        raise JournalError(f"{path}, line 2: a journal begins with Started, got {type(events[0]).__name__}")
    return events, len(data) - len(tail)


def _check_header(path: Path, line: bytes) -> None:
    try:
        version = json.loads(line)["autolrs_journal"]
    except (ValueError, KeyError, TypeError):
        raise JournalError(f"{path}, line 1: not an autolrs journal") from None
    if not isinstance(version, int) or version > SCHEMA:
        raise JournalError(f"{path} has schema {version}; this autolrs reads up to {SCHEMA}: upgrade autolrs")
