"""The run folder's durable points: written whole or not at all, the one before kept, and loaded without running code.

`checkpoint.pt` is rank 0's state and names the files of the other ranks, each of which holds that rank's own:
`checkpoint.<id>.rank1.pt`. Sharded tensors are in `checkpoint.<id>.shards` (`pytorch/shards.py`). All are written and
fsynced first; renaming rank 0's makes the point count on every rank. A write that fails on any rank warns and keeps
what was there.
"""

from __future__ import annotations

import os
import pickle
import shutil
import uuid
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from autolrs.pytorch import shards
from autolrs.pytorch.state import TorchHost
from autolrs.run.comm import Alone, Comm, first
from autolrs.run.files import check_same_run, give_up, save_schedule

__all__ = ["NAME", "PREVIOUS", "check_same_run", "load", "save", "save_schedule"]

NAME = "checkpoint.pt"
PREVIOUS = "checkpoint.previous.pt"
_WHERE = "a checkpoint"


def save(
    run_dir: Path,
    state: dict[str, Any],
    comm: Comm | None = None,
    host: TorchHost | None = None,
    before: str = "",
) -> str:
    """Write this rank's state; called on all ranks at the same step. A kill at any moment leaves a whole point.

    `before` is the id of the last point, whose files are kept; returns that of the newest. With `host`, its sharded
    tensors are written as such.
    """
    comm = comm or Alone()
    sharded = shards.take(host, state["live"]) if host is not None and comm.size > 1 else {}
    number = first(comm, lambda: uuid.uuid4().hex[:12], _WHERE)
    path, partial = run_dir / NAME, run_dir / f"{NAME}.partial"
    mine = partial if comm.rank == 0 else run_dir / _name_of(number, comm.rank)
    error = _write(mine, {**state, "id": number, "ranks": comm.size, "shards": shards.describe(sharded)})
    if sharded:
        error = error or _write_shards(run_dir / _shards_of(number), sharded)
    failed = any(comm.exchange(error is not None, _WHERE))
    if not failed and comm.rank == 0:
        error = _count(path, partial)
    failed = first(comm, lambda: failed or error is not None, _WHERE)
    if failed:
        with suppress(OSError):
            mine.unlink()
    else:
        _clean(run_dir, comm, {number, before})
    if error is not None:
        give_up(path, partial, error)
    return before if failed else number


def load(
    run_dir: str | Path, comm: Comm | None = None, host: TorchHost | None = None
) -> tuple[dict[str, Any] | None, str]:
    """The newest point that is whole on every rank, or None where none was ever written; and a remark on what was not.

    Only tensors and plain values are loaded. Where the number of ranks has changed, everyone gets rank 0's state.
    """
    comm, folder = comm or Alone(), Path(run_dir)
    remarks: list[str] = []
    for name in (NAME, PREVIOUS):
        state, problem = _read(folder / name) if comm.rank == 0 else (None, "")
        there = None if state is None else {"id": state.get("id"), "ranks": state.get("ranks", 1)}
        there, problem = comm.broadcast([there, problem], _WHERE)
        if there is None:
            remarks += [problem] if problem else []
            continue
        if comm.rank:
            same = there["ranks"] == comm.size
            state, problem = _read(folder / (_name_of(there["id"], comm.rank) if same else name))
            problem = problem or ("" if state is not None else f"rank {comm.rank} finds no file for {folder / name}")
        if not any(comm.exchange(problem, _WHERE)) and state is not None and host is not None:
            if state.get("shards"):
                problem = _read_shards(folder / _shards_of(there["id"]), state, host)
            else:
                for tree in (state["live"], *state["snapshots"].values()):
                    shards.cut(host, tree)
        problems = [text for text in comm.exchange(problem, _WHERE) if text]
        if not problems:
            remark = "; ".join(remarks)
            return state, f"{remark}; going on from {name}" if remark else ""
        remarks += dict.fromkeys(problems)
    if remarks:
        raise ValueError("; ".join(remarks))
    return None, ""


def _name_of(number: str, rank: int) -> str:
    return f"checkpoint.{number}.rank{rank}.pt"


def _shards_of(number: str) -> str:
    return f"checkpoint.{number}.shards"


def _write_shards(path: Path, sharded: dict[str, Tensor]) -> Exception | None:
    from torch.distributed.checkpoint.api import CheckpointException

    try:
        shards.write(path, sharded)
    except (CheckpointException, OSError, RuntimeError) as error:  # on all ranks, whichever failed
        return RuntimeError(_first_line(error))
    return None


def _read_shards(path: Path, state: dict[str, Any], host: TorchHost) -> str:
    from torch.distributed.checkpoint.api import CheckpointException

    try:
        shards.read(path, state["shards"], host, state["live"])
    except (CheckpointException, RuntimeError, OSError, EOFError, pickle.UnpicklingError) as error:
        return f"{path} is not a whole checkpoint of autolrs: {_first_line(error)}"
    return ""


def _first_line(error: BaseException) -> str:
    """What went wrong, without the traces of all ranks that torch puts after it."""
    failures = getattr(error, "failures", None)
    if failures:
        return f"{type(error).__name__} on rank {min(failures)}: {failures[min(failures)][0]!r}"
    return str(error).strip().split("\n")[0]


def _write(path: Path, state: dict[str, Any]) -> Exception | None:
    try:
        with open(path, "wb") as file:
            torch.save(state, file)
            file.flush()
            os.fsync(file.fileno())
    except (OSError, RuntimeError) as error:  # torch's writer turns a full disk into a RuntimeError now and then
        return error
    return None


def _count(path: Path, partial: Path) -> OSError | None:
    """Make what was written the point to go on from."""
    try:
        if path.exists():
            os.replace(path, path.with_name(PREVIOUS))
        os.replace(partial, path)
        folder = os.open(path.parent, os.O_RDONLY)  # a rename is on the disk when its folder is
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as error:
        return error
    return None


def _read(path: Path) -> tuple[dict[str, Any] | None, str]:
    """What is in a file, or why it is not a checkpoint; neither where it does not exist."""
    if not path.exists():
        return None, ""
    try:
        state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    except (RuntimeError, OSError, EOFError, pickle.UnpicklingError, ValueError) as error:
        return None, f"{path} is not a whole checkpoint of autolrs: {_first_line(error)}"
    return state, ""


def _clean(run_dir: Path, comm: Comm, kept: set[str]) -> None:
    """Delete this rank's files of all other points; rank 0 those of the shards too."""
    for path in run_dir.glob(_name_of("*", comm.rank)):
        if path.name.split(".")[1] not in kept:
            with suppress(OSError):
                path.unlink()
    if comm.rank == 0:
        for path in run_dir.glob(_shards_of("*")):
            if path.name.split(".")[1] not in kept:
                shutil.rmtree(path, ignore_errors=True)
