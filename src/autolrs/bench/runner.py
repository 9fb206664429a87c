"""Runs methods on tasks and keeps one JSON row per run; rows that are there already are not run again.

Tuning and reporting use different seeds: `TUNE_SEEDS` choose each rival's LR, by validation loss; others are shown.
What the rows say is for `bench.score`.
"""

from __future__ import annotations

import json
import math
import os
import platform
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from statistics import mean
from typing import Any, NamedTuple

import torch

import autolrs
from autolrs.bench.curve import POINTS, Curve
from autolrs.bench.methods import METHODS, Method
from autolrs.bench.tasks import TASKS, Task

try:
    import fcntl
except ImportError:  # not POSIX: there, nothing keeps two runners off one file
    fcntl = None  # type: ignore[assignment]

TUNE_SEEDS = (100,)
REPORT_SEEDS = (0, 1, 2, 3, 4)
OCTAVES = range(-3, 3)  # six LRs a factor 2 apart, extended while the best is at an edge
EXTENSIONS = 8

Row = dict[str, Any]

_NUMBER = (int, float)
_COLUMNS: dict[str, tuple[type, ...]] = {  # what scoring and going on rely on
    "task": (str,),
    "method": (str,),
    "phase": (str,),
    "seed": (int,),
    "lr": (*_NUMBER, type(None)),
    "test": (*_NUMBER, type(None)),
    "validation": (*_NUMBER, type(None)),
    "total_steps": (int,),
    "raw_steps": (int,),
    "evaluations": (int,),
    "seconds": _NUMBER,
    "curve": (list,),
}


class BusyError(RuntimeError):
    """Another process is adding rows to the same results file."""


class Left(NamedTuple):
    """What a results file lacks: runs (while rivals are being tuned, at least so many) and about how many seconds."""

    runs: int
    seconds: float | None  # None if no run has been timed yet


def run(task: Task, method: Method, seed: int, lr: float | None, phase: str) -> Row:
    """One run, as a row of plain values. A run that diverged is a row whose losses are None, not a missing one.

    `lr` is the peak of a tuned method, None for the others; `phase` is "tune" or "report", which also gets a curve of
    test losses (its measuring is in `seconds`).
    """
    if method.tuned != (lr is not None):
        raise ValueError(f"`lr` must be {'a number' if method.tuned else 'None'} for {method.name}, got {lr}")
    bundle = task.build(seed)
    torch.manual_seed(seed)
    curve = Curve(bundle.test, task.total_steps, POINTS if phase == "report" else 0)
    began = time.perf_counter()
    outcome = method.train(bundle, task, lr, curve)
    seconds = time.perf_counter() - began
    return {
        "task": task.name,
        "method": method.name,
        "phase": phase,
        "seed": seed,
        "lr": lr,
        "peak": outcome.peak,
        "test": _plain(bundle.test()),
        "validation": _plain(bundle.evaluate()),
        "total_steps": task.total_steps,
        "raw_steps": outcome.raw_steps,
        "evaluations": outcome.evaluations,
        "seconds": round(seconds, 2),
        "curve": [[step, _plain(loss)] for step, loss in curve.points],
        "versions": {"autolrs": autolrs.__version__, "torch": torch.__version__, "python": platform.python_version()},
        "commit": _commit(),
    }


def read_rows(path: Path) -> list[Row]:
    """The rows of a results file; a corrupt line is an error that names it, a torn last one is left out."""
    if not path.exists():
        return []
    rows = []
    lines = path.read_bytes().split(b"\n")
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError:
            if number == len(lines):
                break
            raise ValueError(f"{path}, line {number}: not a row of JSON") from None
        if wrong := _wrong(row):
            raise ValueError(f"{path}, line {number}: not a benchmark row ({wrong})")
        rows.append(row)
    return rows


def tuned_lr(rows: Iterable[Row], task: Task, method: Method) -> tuple[float | None, float | None]:
    """(best LR, None) once tuning is complete, else (None, the next LR to try).

    All of the grid is tried, then the factor 2 beyond its edge for as long as the best LR lies there.
    """
    tried: dict[float, list[float]] = {}
    for row in rows:
        if _is(row, task, method, "tune"):
            tried.setdefault(row["lr"], []).append(math.inf if row["validation"] is None else row["validation"])
    grid = [math.sqrt(task.lr[0] * task.lr[1]) * 2.0**octave for octave in OCTAVES]
    for lr in (*grid, *tried):
        if len(tried.get(lr, ())) < len(TUNE_SEEDS):
            return None, lr
    loss = {lr: mean(losses) for lr, losses in tried.items()}
    best = min(loss, key=lambda lr: (loss[lr], lr))  # the smallest of those that tie: where all diverge, go down
    if best in (min(loss), max(loss)) and len(loss) < len(grid) + EXTENSIONS:
        return None, best / 2 if best == min(loss) else best * 2
    return best, None


def complete(
    out: Path, tasks: Sequence[str], methods: Sequence[str], seeds: Iterable[int], say: Callable[[str], None] = print
) -> None:
    """Bring the results file to completion for these tasks, methods and seeds; safe to interrupt and call again.

    Whatever would stop it half-way is found at the start: FileNotFoundError for missing data, ImportError for a missing
    package, BusyError if another process is at work on the same file. `say` gets a line per run.
    """
    seeds = tuple(seeds)
    for seed in set(seeds) & set(TUNE_SEEDS):
        raise ValueError(f"`seeds` must not be among those that rivals are tuned on, {TUNE_SEEDS}, got {seed}")
    for task in tasks:
        TASKS[task].find_data()
    for method in methods:
        needs = METHODS[method].needs
        if needs is not None and find_spec(needs) is None:
            raise ImportError(f"method {method} needs {needs}: pip install 'autolrs[bench]'")
    out.parent.mkdir(parents=True, exist_ok=True)
    with _locked(out):
        rows = read_rows(out)
        _mend(out)
        while (following := _following(rows, tasks, methods, seeds)) is not None:
            row = run(*following)
            with open(out, "a", encoding="utf-8") as file:
                file.write(json.dumps(row, allow_nan=False) + "\n")
            rows.append(row)
            say(f"{_line(row)}; {_forecast(left(rows, tasks, methods, seeds))}")


def left(rows: Sequence[Row], tasks: Sequence[str], methods: Sequence[str], seeds: Iterable[int]) -> Left:
    """How much is missing from `rows`; the time goes by that of the runs so far, of the same task if there are any."""
    seeds = tuple(seeds)
    per_step: dict[str, list[float]] = {}
    for row in rows:
        per_step.setdefault(row["task"], []).append(row["seconds"] / row["total_steps"])
    every = [value for values in per_step.values() for value in values]
    runs, seconds = 0, 0.0
    for name in tasks:
        task = TASKS[name]
        missing = sum(_missing(rows, task, METHODS[method], seeds) for method in methods)
        runs += missing
        if every:
            seconds += missing * task.total_steps * mean(per_step.get(name, every))
    return Left(runs, seconds if every else None)


def _following(
    rows: Sequence[Row], tasks: Sequence[str], methods: Sequence[str], seeds: Sequence[int]
) -> tuple[Task, Method, int, float | None, str] | None:
    """The next run, as the arguments of `run`; None when there is nothing left to do."""
    for task in (TASKS[name] for name in tasks):
        for method in (METHODS[name] for name in methods):
            best, candidate = tuned_lr(rows, task, method) if method.tuned else (None, None)
            if candidate is not None:
                done = [row["seed"] for row in rows if _is(row, task, method, "tune") and row["lr"] == candidate]
                return task, method, next(seed for seed in TUNE_SEEDS if seed not in done), candidate, "tune"
            done = [row["seed"] for row in rows if _is(row, task, method, "report")]
            for seed in seeds:
                if seed not in done:
                    return task, method, seed, best, "report"
    return None


def _missing(rows: Sequence[Row], task: Task, method: Method, seeds: Sequence[int]) -> int:
    """Runs that this pair lacks; one more tuning run is counted until tuning is known to be complete."""
    reported = {row["seed"] for row in rows if _is(row, task, method, "report")}
    missing = len(set(seeds) - reported)
    if method.tuned and tuned_lr(rows, task, method)[0] is None:
        tuned = sum(_is(row, task, method, "tune") for row in rows)
        missing += max(1, len(OCTAVES) * len(TUNE_SEEDS) - tuned)
    return missing


def _is(row: Row, task: Task, method: Method, phase: str) -> bool:
    return (row["task"], row["method"], row["phase"]) == (task.name, method.name, phase)


def _wrong(row: Any) -> str | None:
    """What keeps a value from being a row; None if nothing does."""
    if not isinstance(row, dict):
        return f"got {type(row).__name__}"
    for name, types in _COLUMNS.items():
        if name not in row:
            return f"`{name}` is missing"
        if not isinstance(row[name], types):
            return f"`{name}` is {row[name]!r}"
    return None


def _line(row: Row) -> str:
    lr = "" if row["lr"] is None else f" lr {row['lr']:.4g}"
    test = "diverged" if row["test"] is None else f"test {row['test']}"
    return f"{row['task']} {row['method']} {row['phase']} seed {row['seed']}{lr}: {test} in {row['seconds']} s"


def _forecast(rest: Left) -> str:
    if not rest.runs:
        return "done"
    minutes, seconds = divmod(round(rest.seconds or 0.0), 60)
    return f"{rest.runs} to go, about {minutes}:{seconds:02d}"


def _mend(path: Path) -> None:
    """Cut a torn last line off, so that the next row does not join it; one that only lacks its end gets that."""
    if not path.exists():
        return
    data = path.read_bytes()
    tail = data.rpartition(b"\n")[2]
    if not tail:
        return
    try:
        json.loads(tail)
    except ValueError:
        os.truncate(path, len(data) - len(tail))
    else:
        with open(path, "ab") as file:
            file.write(b"\n")


@contextmanager
def _locked(out: Path) -> Iterator[None]:
    """Hold `out`.lock, or raise BusyError. The system lets go of it when the process ends, however it ends."""
    if fcntl is None:
        yield
        return
    path = out.with_name(out.name + ".lock")
    while True:
        file = open(path, "a+", encoding="utf-8")  # noqa: SIM115 - closed below, where the lock is given back
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            who = file.read().strip() or "unknown"
            file.close()
            raise BusyError(
                f"{out} is being written by another run (process {who}): wait for it, or give another file"
            ) from None
        # The holder before us may have removed the file between our opening and locking it: a lock on nothing.
        if path.exists() and os.path.samestat(os.fstat(file.fileno()), path.stat()):
            break
        file.close()
    try:
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield
    finally:
        path.unlink(missing_ok=True)
        file.close()


def _plain(value: float) -> float | None:
    return round(float(value), 6) if math.isfinite(value) else None


@lru_cache(maxsize=1)
def _commit() -> str:
    """The commit of the working directory when the first run ended; empty outside a repository."""
    try:
        done = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip()
