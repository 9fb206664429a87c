"""Runs methods on tasks and keeps one JSON row per run; rows that are there already are not run again.

Tuning and reporting use different seeds: `TUNE_SEEDS` choose each rival's LR, by validation loss; others are shown.
"""

from __future__ import annotations

import json
import math
import platform
import subprocess
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch

import autolrs
from autolrs.bench.curve import POINTS, Curve
from autolrs.bench.methods import METHODS, Method
from autolrs.bench.tasks import TASKS, Task

TUNE_SEEDS = (100,)
REPORT_SEEDS = (0, 1, 2, 3, 4)
OCTAVES = range(-3, 3)  # six LRs a factor 2 apart, extended while the best is at an edge
EXTENSIONS = 8

Row = dict[str, Any]


def run(task: Task, method: Method, seed: int, lr: float | None, phase: str) -> Row:
    """One run, as a row of plain values. A run that diverged is a row with an infinite loss, not a missing one."""
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
    lines = path.read_text().split("\n")
    for number, line in enumerate(lines, start=1):
        if not line:
            continue
        try:
            rows.append(json.loads(line))
        except json.JSONDecodeError:
            if number == len(lines):
                break
            raise ValueError(f"{path}, line {number}: not a row of JSON") from None
    return rows


def tuned_lr(rows: Iterable[Row], task: Task, method: Method) -> tuple[float | None, float | None]:
    """(best LR, None) once tuning is complete, else (None, the next LR to try)."""
    tried: dict[float, list[float]] = {}
    for row in rows:
        if (row["task"], row["method"], row["phase"]) == (task.name, method.name, "tune"):
            tried.setdefault(row["lr"], []).append(math.inf if row["validation"] is None else row["validation"])
    grid = [math.sqrt(task.lr[0] * task.lr[1]) * 2.0**octave for octave in OCTAVES]
    for lr in grid:
        if len(tried.get(lr, ())) < len(TUNE_SEEDS):
            return None, lr
    mean = {lr: sum(losses) / len(losses) for lr, losses in tried.items()}
    best = min(mean, key=lambda lr: mean[lr])
    if best in (min(mean), max(mean)) and len(mean) < len(grid) + EXTENSIONS:
        return None, best / 2 if best == min(mean) else best * 2
    return best, None


def complete(
    out: Path, tasks: list[str], methods: list[str], seeds: Iterable[int], say: Callable[[str], None] = print
) -> None:
    """Bring the results file to completion for these tasks, methods and seeds; safe to interrupt and call again."""
    out.parent.mkdir(parents=True, exist_ok=True)
    seeds = tuple(seeds)
    for task_name in tasks:
        task = TASKS[task_name]
        for name in methods:
            method = METHODS[name]
            lr = None
            while method.tuned:
                rows = read_rows(out)
                lr, candidate = tuned_lr(rows, task, method)
                if lr is not None:
                    break
                seed = TUNE_SEEDS[sum(_is(row, task, method, "tune") and row["lr"] == candidate for row in rows)]
                _append(out, run(task, method, seed, candidate, "tune"), say)
            done = {row["seed"] for row in read_rows(out) if _is(row, task, method, "report")}
            for seed in seeds:
                if seed not in done:
                    _append(out, run(task, method, seed, lr, "report"), say)


def _is(row: Row, task: Task, method: Method, phase: str) -> bool:
    return (row["task"], row["method"], row["phase"]) == (task.name, method.name, phase)


def _append(out: Path, row: Row, say: Callable[[str], None]) -> None:
    with open(out, "a") as file:
        file.write(json.dumps(row, allow_nan=False) + "\n")
    lr = "" if row["lr"] is None else f" lr {row['lr']:.4g}"
    say(
        f"{row['task']} {row['method']} {row['phase']} seed {row['seed']}{lr}: test {row['test']} in {row['seconds']} s"
    )


def _plain(value: float) -> float | None:
    return round(float(value), 6) if math.isfinite(value) else None


def _commit() -> str:
    try:
        done = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, timeout=10)
    except OSError:
        return ""
    return done.stdout.strip()
