"""Forecasters compared on recorded loss series: constant LRs from a common state, what tau' steps tell about tau.

`record` trains and writes series, one JSON line each; `compare` is pure: error against the smoothed loss at tau, and
how well the forecasts of one stage rank its LRs, which is what Algorithm 1 uses them for.
"""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from statistics import mean, median
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import spearmanr

from autolrs.bench.methods._method import endless, step
from autolrs.bench.tasks import Task
from autolrs.core.smoothing import smooth
from autolrs.rivals.forecasters import FORECASTERS, Forecaster
from autolrs.rivals.schedules import set_lr

PROBE = 0.1  # tau' / tau
LRS = 6

Series = dict[str, Any]  # task, profile, seed, lr, losses


class Compared(NamedTuple):
    """One forecaster over all series; errors are relative to the loss at tau, ranks within one task and seed."""

    forecaster: str
    error: float  # median of |forecast - truth| / |truth|
    worst: float  # 90th percentile of the same
    squared: float  # mean squared error, which the paper judges by; infinite if a forecast is
    rank: float  # mean Spearman correlation of forecasts and truths; nan if no group has three LRs
    seconds: float  # a forecast
    series: int


def record(out: Path, task: Task, seed: int, steps: int, say: Callable[[str], None] = print) -> None:
    """Train `LRS` LRs across the task's interval for `steps` steps each, from the same weights on the same batches.

    A series that is in the file already is not run again.
    """
    out.parent.mkdir(parents=True, exist_ok=True)
    there = {(one["task"], one["profile"], one["seed"], one["lr"]) for one in read(out)}
    for lr in np.geomspace(*task.lr, LRS).tolist():
        if (task.name, task.profile, seed, lr) in there:
            continue
        bundle = task.build(seed)
        set_lr(bundle.optimizer, lr)
        batches = endless(bundle.loader)
        losses = [step(bundle, bundle.optimizer, next(batches)).item() for _ in range(steps)]
        plain = [round(loss, 6) if math.isfinite(loss) else None for loss in losses]
        row = {"task": task.name, "profile": task.profile, "seed": seed, "lr": lr, "losses": plain}
        with open(out, "a", encoding="utf-8") as file:
            file.write(json.dumps(row, allow_nan=False) + "\n")
        say(f"{task.name} seed {seed} lr {lr:.4g}: {steps} losses")


def read(path: Path) -> list[Series]:
    """The series of a file; a line that is none is an error that names it."""
    rows = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines() if path.exists() else (), start=1):
        try:
            row = json.loads(line)
            row["task"], row["profile"], row["seed"], row["lr"]
            if len(row["losses"]) < 1:
                raise ValueError
        except (ValueError, KeyError, TypeError):
            raise ValueError(f"{path}, line {number}: not a loss series of `autolrs bench series`") from None
        rows.append(row)
    return rows


def compare(series: Iterable[Series], forecasters: Mapping[str, Forecaster] = FORECASTERS) -> list[Compared]:
    """Every forecaster on every series that stayed finite, in the order of their median error."""
    import time

    finite = [one for one in series if None not in one["losses"] and len(one["losses"]) * PROBE >= 8]
    if not finite:
        raise ValueError("no series is finite and of at least 80 losses: nothing to compare")
    truths = [float(smooth(one["losses"])[-1]) for one in finite]
    result = []
    for name, forecaster in forecasters.items():
        began = time.perf_counter()
        values = []
        for one in finite:
            losses = np.asarray(one["losses"], float)
            values.append(forecaster(losses[: round(PROBE * losses.size)], losses.size))
        seconds = (time.perf_counter() - began) / len(finite)
        errors = [abs(value - truth) / max(abs(truth), 1e-12) for value, truth in zip(values, truths, strict=True)]
        result.append(
            Compared(
                name,
                median(errors),
                float(np.quantile(errors, 0.9, method="higher")),
                mean((value - truth) ** 2 for value, truth in zip(values, truths, strict=True)),
                _ranks(finite, values, truths),
                seconds,
                len(finite),
            )
        )
    return sorted(result, key=lambda one: one.error)


def _ranks(series: Sequence[Series], values: Sequence[float], truths: Sequence[float]) -> float:
    groups: dict[tuple[Any, ...], list[int]] = {}
    for index, one in enumerate(series):
        groups.setdefault((one["task"], one["profile"], one["seed"]), []).append(index)
    found = []
    for members in groups.values():
        if len(members) >= 3:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # that all forecasts are equal: no rank, counted as none
                rank = spearmanr([values[i] for i in members], [truths[i] for i in members]).statistic
            found.append(0.0 if math.isnan(rank) else float(rank))
    return mean(found) if found else math.nan
