"""Several runs side by side, as data: final loss, steps to a common target, cost."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from autolrs.report.figures import LossSeries, ScheduleSeries, fill_ramps, loss_series, schedule_series
from autolrs.report.info import RunInfo


@dataclass(frozen=True)
class Compared:
    """One run's row and lines."""

    name: str
    strategy: str
    schedule: ScheduleSeries
    losses: LossSeries
    final_loss: float | None
    committed: int
    to_target: int | None  # committed steps after which the running mean first reached the target
    raw: int
    ratio: float | None
    evaluations: int
    finished: bool


@dataclass(frozen=True)
class Comparison:
    """All runs and the target loss they are timed by."""

    runs: tuple[Compared, ...]
    target: float | None


def compare(runs: Sequence[tuple[str, RunInfo]], target: float | None = None) -> Comparison:
    """`target` is by default the lowest running mean of the loss that every run came to."""
    lines = [loss_series(run, limit=1500) for _, run in runs]
    if target is None:
        target = max((low for low in map(_lowest, lines) if low is not None), default=None)
    rows = [
        Compared(
            name,
            run.settings.strategy,
            fill_ramps(schedule_series(run.schedule)),
            line,
            run.final_loss,
            run.cost.committed,
            None if target is None else _first_below(line, target),
            run.cost.raw,
            run.cost.ratio,
            run.cost.evaluations,
            run.finished is not None,
        )
        for (name, run), line in zip(runs, lines, strict=True)
    ]
    return Comparison(tuple(rows), target)


def _lowest(line: LossSeries) -> float | None:
    finite = line.smooth[np.isfinite(line.smooth)]
    return float(finite.min()) if finite.size else None


def _first_below(line: LossSeries, target: float) -> int | None:
    reached = np.flatnonzero(line.smooth <= target + 1e-12 * abs(target))
    return math.ceil(line.steps[reached[0]]) if reached.size else None
