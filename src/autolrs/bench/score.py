"""Scores from rows, pure: final test loss with its spread, cost, and steps to the tuned cosine's final loss."""

from __future__ import annotations

import math
from collections.abc import Iterable
from statistics import geometric_mean, mean, median, stdev
from typing import Any, NamedTuple

from autolrs.bench.curve import steps_to

TUNED_SCHEDULES = ("cosine", "linear", "onecycle", "wsd", "constant")
EVALUATION_STEPS = 10 / 3  # steps' worth of a validation pass: ten forward passes of a third of a step

Row = dict[str, Any]


class Score(NamedTuple):
    """One method on one task over the reported seeds; nan where there is nothing to compare with."""

    task: str
    method: str
    seeds: int
    loss: float  # mean final test loss; infinite if any run diverged
    spread: float  # standard deviation over seeds; nan for one seed or if any run diverged
    ratio: float  # to the best tuned schedule of this task
    cost: float  # all steps and validation passes over total_steps, tuning not counted
    # total_steps over the median of the steps to the tuned cosine's mean final loss; 0 if most runs never reach it
    speedup: float
    speedup_all: float  # the same with search and validation counted


class Summary(NamedTuple):
    """One method over the tasks on which it and a tuned schedule were run."""

    tasks: int
    ratio: float  # geometric mean over tasks; infinite if a run diverged on any
    worst: float  # largest ratio
    cost: float  # mean over tasks


def score(rows: Iterable[Row]) -> list[Score]:
    """Scores of all (task, method) pairs that have reported rows, in the rows' order of tasks and methods."""
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        if row["phase"] == "report":
            groups.setdefault((row["task"], row["method"]), []).append(row)
    _check(groups)
    finals = {key: mean(map(_test, group)) for key, group in groups.items()}
    result = []
    for (task, method), group in groups.items():
        best = min((finals[task, name] for name in TUNED_SCHEDULES if (task, name) in finals), default=math.nan)
        target = finals.get((task, "cosine"), math.nan)
        total = group[0]["total_steps"]
        extra = mean(row["raw_steps"] - total + row["evaluations"] * EVALUATION_STEPS for row in group)
        reach = median(steps_to([(s, math.inf if v is None else v) for s, v in row["curve"]], target) for row in group)
        comparable = math.isfinite(target)  # a cosine that diverged is no mark: everything would reach it
        tests = [_test(row) for row in group]
        result.append(
            Score(
                task,
                method,
                len(group),
                finals[task, method],
                stdev(tests) if len(tests) > 1 and all(map(math.isfinite, tests)) else math.nan,
                _ratio(finals[task, method], best),
                1 + extra / total,
                total / reach if comparable else math.nan,
                total / (reach + extra) if comparable else math.nan,
            )
        )
    return result


def summary(scores: Iterable[Score]) -> dict[str, Summary]:
    """Method -> its summary. One that was never run beside a tuned schedule has no tasks and nan for its ratios."""
    by_method: dict[str, list[Score]] = {}
    for one in scores:
        by_method.setdefault(one.method, []).append(one)
    return {method: _summary(group) for method, group in by_method.items()}


def _summary(group: list[Score]) -> Summary:
    compared = [one for one in group if not math.isnan(one.ratio)]
    if not compared:
        return Summary(0, math.nan, math.nan, mean(one.cost for one in group))
    ratios = [one.ratio for one in compared]
    # geometric_mean refuses 0, which a loss of 0 gives, and takes the mean of 0 and infinity for a number.
    whole = geometric_mean(ratios) if min(ratios) > 0 else 0.0
    return Summary(
        len(compared), math.inf if math.inf in ratios else whole, max(ratios), mean(one.cost for one in compared)
    )


def _check(groups: dict[tuple[str, str], list[Row]]) -> None:
    """Refuse what would be averaged wrongly: a run counted twice, a task that was run with several budgets."""
    budgets: dict[str, int] = {}
    for (task, method), group in groups.items():
        seen = set()
        for row in group:
            if row["seed"] in seen:
                raise ValueError(f"{task} {method} seed {row['seed']} is reported twice: give each run once")
            seen.add(row["seed"])
            if row["total_steps"] != budgets.setdefault(task, row["total_steps"]):
                raise ValueError(
                    f"rows of {task} must have one total_steps, got {budgets[task]} and {row['total_steps']}"
                )


def _test(row: Row) -> float:
    return math.inf if row["test"] is None else float(row["test"])


def _ratio(loss: float, best: float) -> float:
    if not math.isfinite(best):  # no tuned schedule was run, or all diverged
        return math.nan
    if best == 0.0:
        return 1.0 if loss == 0.0 else math.inf
    return loss / best
