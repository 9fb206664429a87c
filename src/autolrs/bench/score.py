"""Scores from rows, pure: final loss and accuracy, cost, steps to a target, profiles over tasks, paired differences."""

from __future__ import annotations

import math
from collections.abc import Iterable
from statistics import geometric_mean, mean, median, stdev
from typing import Any, NamedTuple

from autolrs.bench.curve import steps_to
from autolrs.core.settings import FORWARD

TUNED_SCHEDULES = (
    *("cosine", "linear", "onecycle", "wsd", "constant", "cosine-tenth", "step", "inverse-sqrt", "exponential", "sgdr"),
)
EVALUATION_STEPS = 10 * FORWARD  # steps' worth of a validation pass where no row says it: ten forward passes

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
    accuracy: float = math.nan  # mean final accuracy, where the task has one
    tuning: float = 0.0  # steps of tuning runs, with their validation passes, over total_steps
    spread_ratio: float = math.nan  # to that of the best tuned schedule


class Paired(NamedTuple):
    """A method against another on the seeds of a task that both were run on."""

    task: str
    method: str
    seeds: int
    difference: float  # mean of loss / other's loss - 1
    error: float  # standard error of that mean; nan for one seed
    wins: int  # seeds on which the loss is lower


class Summary(NamedTuple):
    """One method over the tasks on which it and a tuned schedule were run."""

    tasks: int
    ratio: float  # geometric mean over tasks; infinite if a run diverged on any
    worst: float  # largest ratio
    cost: float  # mean over tasks
    spread: float = math.nan  # geometric mean of the ratios, over the tasks that have one


def score(rows: Iterable[Row]) -> list[Score]:
    """Scores of all (task, method) pairs that have reported rows, in the rows' order of tasks and methods."""
    rows = list(rows)
    groups = by_task_and_method(rows)
    _check(groups)
    prices = evaluation_prices(rows)
    tuning: dict[tuple[str, str], float] = {}
    for row in rows:
        if row["phase"] == "tune":
            key = (label(row), row["method"])
            tuning[key] = tuning.get(key, 0.0) + worth(row, prices) / row["total_steps"]
    tests = {key: [*map(_test, group)] for key, group in groups.items()}
    finals = {key: mean(losses) for key, losses in tests.items()}
    spreads = {key: _spread(losses) for key, losses in tests.items()}
    result = []
    for (task, method), group in groups.items():
        rivals = [(finals[task, name], spreads[task, name]) for name in TUNED_SCHEDULES if (task, name) in finals]
        best, usual = min(rivals, default=(math.nan, math.nan))
        target = finals.get((task, "cosine"), math.nan)
        total = group[0]["total_steps"]
        extra = mean(worth(row, prices) - total for row in group)
        reach = median(steps_to([(s, math.inf if v is None else v) for s, v in row["curve"]], target) for row in group)
        comparable = math.isfinite(target)  # a cosine that diverged is no mark: everything would reach it
        accuracies = [row["accuracy"] for row in group if row.get("accuracy") is not None]
        known = len(accuracies) == len(group)
        result.append(
            Score(
                task,
                method,
                len(group),
                finals[task, method],
                spreads[task, method],
                _ratio(finals[task, method], best),
                1 + extra / total,
                total / reach if comparable else math.nan,
                total / (reach + extra) if comparable else math.nan,
                mean(accuracies) if known else math.nan,
                tuning.get((task, method), 0.0),
                spreads[task, method] / usual if usual else math.nan,
            )
        )
    return result


def evaluation_prices(rows: Iterable[Row]) -> dict[str, float]:
    """Task -> steps' worth of its validation pass, as some run weighed it: it is the same for all methods."""
    return {label(row): cost for row in rows if (cost := _weighed(row)) is not None}


def _weighed(row: Row) -> float | None:
    """As this run weighed it: where batches differ in size, runs differ a little."""
    return row.get("settings", {}).get("evaluate_cost")  # type: ignore[no-any-return]


def worth(row: Row, prices: dict[str, float]) -> float:
    """All steps of a run, its validation passes counted in steps."""
    own = _weighed(row)
    price = prices.get(label(row), EVALUATION_STEPS) if own is None else own
    return float(row["raw_steps"] + row["evaluations"] * price)


def summary(scores: Iterable[Score]) -> dict[str, Summary]:
    """Method -> its summary. One that was never run beside a tuned schedule has no tasks and nan for its ratios."""
    by_method: dict[str, list[Score]] = {}
    for one in scores:
        by_method.setdefault(one.method, []).append(one)
    return {method: _summary(group) for method, group in by_method.items()}


def label(row: Row) -> str:
    """The task's name, with its profile where that is not the usual one."""
    profile = row.get("profile", "cpu")
    return row["task"] if profile == "cpu" else f"{row['task']} ({profile})"


def by_task_and_method(rows: Iterable[Row]) -> dict[tuple[str, str], list[Row]]:
    """Reported rows by (task, method), in the order of their first."""
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        if row["phase"] == "report":
            groups.setdefault((label(row), row["method"]), []).append(row)
    return groups


def paired(rows: Iterable[Row], against: str = "cosine") -> list[Paired]:
    """Every method against one other, seed by seed; a pair of which one diverged is won or lost, not in the mean."""
    groups = by_task_and_method(rows)
    result = []
    for (task, method), group in groups.items():
        other = {row["seed"]: _test(row) for row in groups.get((task, against), ())}
        pairs = [(_test(row), other[row["seed"]]) for row in group if row["seed"] in other]
        if method == against or not pairs:
            continue
        ratios = [a / b - 1 for a, b in pairs if math.isfinite(a) and math.isfinite(b) and b > 0]
        result.append(
            Paired(
                task,
                method,
                len(pairs),
                mean(ratios) if ratios else math.nan,
                stdev(ratios) / math.sqrt(len(ratios)) if len(ratios) > 1 else math.nan,
                sum(a < b for a, b in pairs),
            )
        )
    return result


def performance_profile(scores: Iterable[Score], factors: Iterable[float]) -> dict[str, list[float]]:
    """Method -> share of the tasks on which its loss is within each factor of the lowest of all methods (Dolan, More).

    Tasks on which a method was not run count as not reached, so only methods run everywhere are treated alike.
    """
    scores, factors = list(scores), list(factors)
    tasks = list(dict.fromkeys(one.task for one in scores))
    lowest = {task: min(one.loss for one in scores if one.task == task) for task in tasks}
    result = {}
    for method in dict.fromkeys(one.method for one in scores):
        ratios = [_ratio(one.loss, lowest[one.task]) for one in scores if one.method == method]
        result[method] = [sum(ratio <= factor for ratio in ratios) / len(tasks) for factor in factors]
    return result


def steps_to_accuracy(row: Row, target: float) -> float:
    """First measured step at which the accuracy is at least `target`; infinite if it never is."""
    points = row.get("accuracy_curve", [])
    return next((float(step) for step, value in points if value is not None and value >= target), math.inf)


def _summary(group: list[Score]) -> Summary:
    compared = [one for one in group if not math.isnan(one.ratio)]
    if not compared:
        return Summary(0, math.nan, math.nan, mean(one.cost for one in group))
    ratios = [one.ratio for one in compared]
    # geometric_mean refuses 0, which a loss of 0 gives, and takes the mean of 0 and infinity for a number.
    whole = geometric_mean(ratios) if min(ratios) > 0 else 0.0
    spreads = [one.spread_ratio for one in compared if one.spread_ratio > 0]
    return Summary(
        len(compared),
        math.inf if math.inf in ratios else whole,
        max(ratios),
        mean(one.cost for one in compared),
        geometric_mean(spreads) if spreads else math.nan,
    )


def _spread(losses: list[float]) -> float:
    return stdev(losses) if len(losses) > 1 and all(map(math.isfinite, losses)) else math.nan


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
