"""Scores from rows, pure: final test loss with its spread, cost, and steps to the tuned cosine's final loss."""

from __future__ import annotations

import math
from collections.abc import Iterable
from statistics import mean, median, stdev
from typing import Any, NamedTuple

from autolrs.bench.curve import steps_to

TUNED_SCHEDULES = ("cosine", "linear", "onecycle", "wsd", "constant")
EVALUATION_STEPS = 10 / 3  # steps' worth of a validation pass: ten forward passes of a third of a step

Row = dict[str, Any]


class Score(NamedTuple):
    """One method on one task over the reported seeds."""

    task: str
    method: str
    seeds: int
    loss: float  # mean final test loss; infinite if any run diverged
    spread: float  # standard deviation over seeds
    ratio: float  # to the best tuned schedule of this task
    cost: float  # all steps and validation passes over total_steps, tuning not counted
    speedup: (
        float  # total_steps over the median steps to the tuned cosine's mean final loss; 0 if most runs never reach it
    )
    speedup_all: float  # the same with search and validation counted


def score(rows: Iterable[Row]) -> list[Score]:
    """Scores of all complete (task, method) pairs, in the rows' order of tasks and methods."""
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        if row["phase"] == "report":
            groups.setdefault((row["task"], row["method"]), []).append(row)
    finals = {key: _mean_test(group) for key, group in groups.items()}
    result = []
    for (task, method), group in groups.items():
        best = min((finals[task, name] for name in TUNED_SCHEDULES if (task, name) in finals), default=math.nan)
        target = finals.get((task, "cosine"), math.nan)
        total = group[0]["total_steps"]
        extra = mean(row["raw_steps"] - total + row["evaluations"] * EVALUATION_STEPS for row in group)
        reach = median(steps_to([(s, math.inf if v is None else v) for s, v in row["curve"]], target) for row in group)
        tests = [math.inf if row["test"] is None else row["test"] for row in group]
        result.append(
            Score(
                task,
                method,
                len(group),
                finals[task, method],
                stdev(tests) if len(tests) > 1 and all(map(math.isfinite, tests)) else math.nan,
                finals[task, method] / best,
                1 + extra / total,
                total / reach if math.isfinite(reach) else 0.0,
                total / (reach + extra) if math.isfinite(reach) else 0.0,
            )
        )
    return result


def summary(scores: Iterable[Score]) -> dict[str, tuple[int, float, float, float]]:
    """Method -> (tasks, geometric mean of the loss ratio, worst ratio, mean cost), over the tasks it was run on."""
    by_method: dict[str, list[Score]] = {}
    for one in scores:
        by_method.setdefault(one.method, []).append(one)
    return {
        method: (
            len(group),
            math.exp(mean(math.log(one.ratio) for one in group))
            if all(math.isfinite(one.ratio) for one in group)
            else math.inf,
            max(one.ratio for one in group),
            mean(one.cost for one in group),
        )
        for method, group in by_method.items()
    }


def _mean_test(group: list[Row]) -> float:
    return mean(math.inf if row["test"] is None else row["test"] for row in group)
