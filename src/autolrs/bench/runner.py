"""Runs methods on tasks and keeps one JSON row per run; rows that are there already are not run again.

How rivals are tuned, and on which seeds, is in `bench.tuning`; what the rows say is for `bench.score`.
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
from autolrs.bench import tuning
from autolrs.bench.curve import POINTS, SMOKE_POINTS, Curve
from autolrs.bench.methods import METHODS, Method, Run
from autolrs.bench.tasks import TASKS, Task
from autolrs.bench.tuning import REPORT_SEEDS, TUNE_SEEDS, Candidate

try:
    import fcntl
except ImportError:  # not POSIX: there, nothing keeps two runners off one file
    fcntl = None  # type: ignore[assignment]

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
_LATER: dict[str, tuple[type, ...]] = {  # may be missing: rows from before have none
    "profile": (str,),
    "options": (dict,),
    "accuracy": (*_NUMBER, type(None)),
    "accuracy_curve": (list,),
    "lrs": (list,),
    "losses": (list,),
}

__all__ = ["REPORT_SEEDS", "TUNE_SEEDS", "BusyError", "Left", "complete", "left", "read_rows", "run"]


class BusyError(RuntimeError):
    """Another process is adding rows to the same results file."""


class Left(NamedTuple):
    """What a results file lacks: runs (while rivals are being tuned, at least so many) and about how many seconds."""

    runs: int
    seconds: float | None  # None if no run has been timed yet


def run(task: Task, method: Method, seed: int, candidate: Candidate, phase: str) -> Row:
    """One run, as a row of plain values. A run that diverged is a row whose losses are None, not a missing one.

    `candidate` is what tuning chose, empty for a method that needs none; `phase` is "tune" or "report", which also gets
    curves of test losses, training losses and LRs (the measuring is in `seconds`).
    """
    if method.tuned != (candidate.lr is not None):
        raise ValueError(f"`lr` must be {'a number' if method.tuned else 'None'} for {method.name}, got {candidate.lr}")
    bundle = task.build(seed)
    torch.manual_seed(seed)
    accuracy = bundle.accuracy
    measure = bundle.test if accuracy is None else lambda: (bundle.test(), accuracy())
    points = SMOKE_POINTS if task.profile == "smoke" else POINTS
    curve = Curve(measure, task.total_steps, points if phase == "report" else 0)
    began = time.perf_counter()
    outcome = method.train(bundle, Run(task, seed, curve, candidate.lr, dict(candidate.options)))
    seconds = time.perf_counter() - began
    return {
        "task": task.name,
        "method": method.name,
        "phase": phase,
        "seed": seed,
        "lr": candidate.lr,
        "peak": outcome.peak,
        "test": _plain(bundle.test()),
        "validation": _plain(bundle.evaluate()),
        "total_steps": task.total_steps,
        "raw_steps": outcome.raw_steps,
        "evaluations": outcome.evaluations,
        "seconds": round(seconds, 2),
        "curve": _pairs(curve.points),
        "profile": task.profile,
        "options": dict(candidate.options),
        "settings": dict(outcome.settings),
        "accuracy": None if accuracy is None else _plain(accuracy()),
        "accuracy_curve": _pairs(curve.accuracies),
        "lrs": [[step, float(f"{lr:.6g}")] for step, lr in curve.lrs],
        "losses": _pairs(curve.losses),
        "further": {name: _plain(value) for name, value in bundle.finish().items()} if phase == "report" else {},
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


def complete(
    out: Path,
    tasks: Sequence[str],
    methods: Sequence[str],
    seeds: Iterable[int],
    say: Callable[[str], None] = print,
    profile: str = "cpu",
) -> None:
    """Bring the results file to completion for these tasks, methods and seeds; safe to interrupt and call again.

    Whatever would stop it half-way is found at the start: FileNotFoundError for missing data, ImportError for a missing
    package, ValueError for a task without this profile or one that a method cannot be run on, BusyError if another
    process is at work on the same file. `say` gets a line per run.
    """
    seeds = tuple(seeds)
    for seed in set(seeds) & set(TUNE_SEEDS):
        raise ValueError(f"`seeds` must not be among those that rivals are tuned on, {TUNE_SEEDS}, got {seed}")
    chosen = [TASKS[task].at(profile) for task in tasks]
    for task in chosen:
        task.find_data()
    for method in methods:
        one = METHODS[method]
        if one.needs is not None and find_spec(one.needs) is None:
            raise ImportError(f"method {method} needs {one.needs}: pip install 'autolrs[{one.extra}]'")
        for task in chosen:
            if why := one.refuses(task):
                raise ValueError(f"method {method} cannot be run on {task.name}: {why}")
    out.parent.mkdir(parents=True, exist_ok=True)
    with _locked(out):
        rows = read_rows(out)
        _mend(out)
        while (following := _following(rows, chosen, methods, seeds)) is not None:
            row = run(*following)
            with open(out, "a", encoding="utf-8") as file:
                file.write(json.dumps(row, allow_nan=False) + "\n")
                file.flush()
                os.fsync(file.fileno())
            rows.append(row)
            say(f"{_line(row)}; {_forecast(left(rows, tasks, methods, seeds, profile))}")


def left(
    rows: Sequence[Row], tasks: Sequence[str], methods: Sequence[str], seeds: Iterable[int], profile: str = "cpu"
) -> Left:
    """How much is missing from `rows`; the time goes by that of the runs so far, of the same task if there are any."""
    seeds = tuple(seeds)
    per_step: dict[str, list[float]] = {}
    for row in rows:
        if row.get("profile", "cpu") == profile:
            per_step.setdefault(row["task"], []).append(row["seconds"] / row["total_steps"])
    every = [value for values in per_step.values() for value in values]
    runs, seconds = 0, 0.0
    for name in tasks:
        task = TASKS[name].at(profile)
        missing = sum(_missing(rows, task, METHODS[method], seeds) for method in methods)
        runs += missing
        if every:
            seconds += missing * task.total_steps * mean(per_step.get(name, every))
    return Left(runs, seconds if every else None)


def _following(
    rows: Sequence[Row], tasks: Sequence[Task], methods: Sequence[str], seeds: Sequence[int]
) -> tuple[Task, Method, int, Candidate, str] | None:
    """The next run, as the arguments of `run`; None when there is nothing left to do."""
    for task in tasks:
        for method in (METHODS[name] for name in methods):
            best, candidate = tuning.choose(rows, task, method)
            if candidate is not None:
                done = [row["seed"] for row in rows if tuning.is_row(row, task, method, "tune")
                        and tuning.of(row) == candidate]  # fmt: skip
                return task, method, next(seed for seed in TUNE_SEEDS if seed not in done), candidate, "tune"
            assert best is not None
            done = [row["seed"] for row in rows if tuning.is_row(row, task, method, "report")]
            for seed in seeds:
                if seed not in done:
                    return task, method, seed, best, "report"
    return None


def _missing(rows: Sequence[Row], task: Task, method: Method, seeds: Sequence[int]) -> int:
    """Runs that this pair lacks."""
    reported = {row["seed"] for row in rows if tuning.is_row(row, task, method, "report")}
    return len(set(seeds) - reported) + tuning.missing(rows, task, method)


def _wrong(row: Any) -> str | None:
    """What keeps a value from being a row; None if nothing does."""
    if not isinstance(row, dict):
        return f"got {type(row).__name__}"
    for name, types in _COLUMNS.items():
        if name not in row:
            return f"`{name}` is missing"
        if not isinstance(row[name], types):
            return f"`{name}` is {row[name]!r}"
    for name, types in _LATER.items():
        if name in row and not isinstance(row[name], types):
            return f"`{name}` is {row[name]!r}"
    return None


def _line(row: Row) -> str:
    lr = "" if row["lr"] is None else f" lr {row['lr']:.4g}"
    options = "".join(f" {name} {value:.4g}" for name, value in row["options"].items())
    test = "diverged" if row["test"] is None else f"test {row['test']}"
    return f"{row['task']} {row['method']} {row['phase']} seed {row['seed']}{lr}{options}: {test} in {row['seconds']} s"


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


def _pairs(points: Iterable[tuple[int, float]]) -> list[list[float | None]]:
    return [[step, _plain(value)] for step, value in points]


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
