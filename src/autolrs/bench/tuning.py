"""How rivals are tuned, in one place: which seeds, which values, what it costs.

The rule: what is tuned is tuned on `TUNE_SEEDS`, by validation loss, and reported on others. LRs are six, a factor 2
apart around the middle of the task's interval, and go on beyond an edge for as long as the best lies there; a method
with a grid of its own (`Method.lrs`, `Method.options`) tries all of it. Smoke tests try two values of each.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import product
from statistics import mean
from typing import Any, NamedTuple

from autolrs.bench.methods import Method
from autolrs.bench.tasks import Task

TUNE_SEEDS = (100,)
REPORT_SEEDS = (0, 1, 2, 3, 4)
OCTAVES = range(-3, 3)
EXTENSIONS = 8

Row = dict[str, Any]
Options = tuple[tuple[str, float], ...]  # sorted, so that it can be compared


class Candidate(NamedTuple):
    """What tuning chooses: the LR (None for a method that finds it itself) and further options."""

    lr: float | None = None
    options: Options = ()


def of(row: Row) -> Candidate:
    """The candidate that a row was run with; rows from before there were options have none."""
    return Candidate(row["lr"], tuple(sorted(row.get("options", {}).items())))


def grid(task: Task, method: Method) -> list[Candidate]:
    """All that is tried in any case; empty for a method that needs no tuning."""
    if not method.tuned and not method.options:
        return []
    middle = math.sqrt(task.lr[0] * task.lr[1])
    lrs: Sequence[float | None] = [None]
    if method.tuned:
        lrs = _few(task, method.lrs(task) if method.lrs else [middle * 2.0**octave for octave in OCTAVES])
    names = sorted(method.options)
    values = product(*(_few(task, method.options[name]) for name in names))
    return [Candidate(lr, tuple(zip(names, chosen, strict=True))) for chosen in values for lr in lrs]


def choose(rows: Iterable[Row], task: Task, method: Method) -> tuple[Candidate | None, Candidate | None]:
    """(best, None) once tuning is complete, else (None, the next to try)."""
    candidates = grid(task, method)
    if not candidates:
        return Candidate(), None
    tried: dict[Candidate, list[float]] = {}
    for row in rows:
        if is_row(row, task, method, "tune"):
            tried.setdefault(of(row), []).append(math.inf if row["validation"] is None else row["validation"])
    for candidate in (*candidates, *tried):
        if len(tried.get(candidate, ())) < len(TUNE_SEEDS):
            return None, candidate
    loss = {candidate: mean(losses) for candidate, losses in tried.items()}
    # The smallest LR of those that tie: where all diverge, go down.
    best = min(loss, key=lambda candidate: (loss[candidate], candidate.lr or 0.0))
    if best.lr is not None and method.lrs is None and task.profile != "smoke":
        lrs = [one.lr for one in loss if one.options == best.options and one.lr is not None]
        if best.lr in (min(lrs), max(lrs)) and len(loss) < len(candidates) + EXTENSIONS:
            return None, best._replace(lr=best.lr / 2 if best.lr == min(lrs) else best.lr * 2)
    return best, None


def missing(rows: Sequence[Row], task: Task, method: Method) -> int:
    """Tuning runs that are lacking; one more is counted until tuning is known to be complete."""
    if choose(rows, task, method)[0] is not None:
        return 0
    done = sum(is_row(row, task, method, "tune") for row in rows)
    return max(1, len(grid(task, method)) * len(TUNE_SEEDS) - done)


def is_row(row: Row, task: Task, method: Method, phase: str) -> bool:
    """Whether a row is of this task, in its profile, by this method; rows from before there were profiles are cpu's."""
    key = (row["task"], row.get("profile", "cpu"), row["method"], row["phase"])
    return key == (task.name, task.profile, method.name, phase)


def _few(task: Task, values: Sequence[float]) -> Sequence[float]:
    """In a smoke test the two in the middle."""
    if task.profile != "smoke" or len(values) < 3:
        return values
    start = (len(values) - 1) // 2
    return values[start : start + 2]
