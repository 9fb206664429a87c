"""The paper's tables by name, from our rows, with the paper's own numbers beside them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from statistics import mean, median

from autolrs.bench import published
from autolrs.bench.methods.ours import ABLATIONS
from autolrs.bench.score import Row, by_task_and_method, evaluation_prices, label, score, steps_to_accuracy, worth
from autolrs.bench.tables._table import Table, over_seeds, percent, spread
from autolrs.bench.tasks import TASKS

COMPARED = ("hand-tuned", "hypergradient", "rtho", "marthe", "hyperband", "bo-early-stopping", "asha", "pbt", "pb2")
NOTE = "The paper's column is of full-size models, Section 5 and Appendix A.5."


def methods(rows: Iterable[Row]) -> list[Table]:
    """Section 5, the comparison with prior methods: the result, and all steps that finding the schedule took."""
    tables = []
    scores = score(rows)
    for task in dict.fromkeys(one.task for one in scores):
        name = task.split(" ")[0]
        published_here, lines = name in published.HAND_TUNED, []
        for one in sorted((one for one in scores if one.task == task), key=lambda one: one.loss):
            if one.method in (*COMPARED, "paper", "horizon"):
                loss = f"{one.loss:.4f}" if math.isfinite(one.loss) else "diverged"
                lines.append([one.method, loss, over_seeds(one.spread, one.seeds), percent(one.accuracy)])
                lines[-1] += [f"{one.cost + one.tuning:.1f} runs", f"{one.tuning:.1f} runs" if one.tuning else "-"]
                if published_here:
                    lines[-1].append(_beside(name, one.method))
        if lines:
            columns = ["method", "test loss", "over seeds", "accuracy", "cost, all counted", "of that tuning"]
            columns += ["paper"] if published_here else []
            tables.append(Table(f"Methods compared: {task}", columns, lines, NOTE if published_here else ""))
    if tables and not any(table.note for table in tables):
        lines = [[name, f"{one.accuracy:.2f} %", f"{one.seconds:,} s"] for name, one in published.METHODS.items()]
        lines.append(["hand-tuned", f"{published.HAND_TUNED['vgg16-cifar10']:.2f} %", "-"])
        columns = ["method", "accuracy", "time to find the schedule"]
        tables.append(Table("Methods compared: the paper's, VGG-16 on CIFAR-10 at full size", columns, lines))
    return tables


def _beside(task: str, method: str) -> str:
    """What the paper has for a method: VGG-16 on CIFAR-10, and hand-tuned schedules of all of CIFAR."""
    theirs = published.METHODS.get(method)
    if theirs and task == "vgg16-cifar10":
        return f"{theirs.accuracy:.2f} %, {theirs.seconds:,} s"
    return f"{published.HAND_TUNED[task]:.2f} %" if method == "hand-tuned" else "-"


def tau_max(rows: Iterable[Row]) -> list[Table]:
    """Appendix A.5.2: Algorithm 1 at half, once and twice the usual tau_max, trial by trial."""
    names = {"paper-tau-half": 4000, "paper": 8000, "paper-tau-double": 16000}
    return _trials(rows, names, published.TAU_MAX, "Sensitivity to tau_max", list(names))


def random_search(rows: Iterable[Row]) -> list[Table]:
    """Appendix A.5.4: random search in the place of BO."""
    return _trials(rows, {"paper-random": 8000}, published.RANDOM_SEARCH, "Random search", ["paper", "paper-random"])


def grid_search(rows: Iterable[Row]) -> list[Table]:
    """Appendix A.5.4: grid search in the place of BO."""
    return _trials(rows, {"paper-grid": 8000}, published.GRID_SEARCH, "Grid search", ["paper", "paper-grid"])


def ablation(rows: Iterable[Row]) -> list[Table]:
    """Algorithm 1 with one thing changed at a time, and the change in loss against it as printed.

    The median is there because one seed on which the network dies makes the mean.
    """
    rows = list(rows)
    scores = [one for one in score(rows) if one.method in ("paper", *ABLATIONS)]
    groups = by_task_and_method(rows)
    tables = []
    for task in dict.fromkeys(one.task for one in scores):
        mine = {one.method: one for one in scores if one.task == task}
        base = mine["paper"].loss if "paper" in mine else math.nan
        lines = []
        for one in mine.values():
            change = one.loss / base - 1 if math.isfinite(one.loss) and base > 0 else math.nan
            middle = median(math.inf if row["test"] is None else row["test"] for row in groups[task, one.method])
            losses = [f"{loss:.4f}" if math.isfinite(loss) else "diverged" for loss in (one.loss, middle)]
            seeds = over_seeds(one.spread, one.seeds)
            lines.append([one.method, losses[0], seeds, losses[1], percent(change), percent(one.accuracy)])
            lines[-1].append(f"{one.cost:.2f}")
        columns = ["variant", "test loss", "over seeds", "median", "against Algorithm 1", "accuracy", "cost"]
        tables.append(Table(f"Ablations of Algorithm 1: {task}", columns, lines))
    return tables


def hypergradient(rows: Iterable[Row]) -> list[Table]:
    """Appendix A.5.1: hypergradient descent over its two LRs, from the rows of its tuning."""
    grids: dict[str, dict[tuple[float, float], Row]] = {}
    for row in rows:
        if row["method"] == "hypergradient" and row["phase"] == "tune":
            grids.setdefault(label(row), {})[row["lr"], row["options"]["hypergradient_lr"]] = row
    tables = []
    for task, grid in grids.items():
        inner = sorted({hyper for _, hyper in grid})
        lines = [
            [f"{lr:g}", *(_result(grid.get((lr, hyper))) for hyper in inner)] for lr in sorted({lr for lr, _ in grid})
        ]
        tables.append(Table(f"Hypergradient descent: {task}, LR down, hypergradient LR across",
                            ["", *(f"{hyper:g}" for hyper in inner)], lines))  # fmt: skip
    for name, cells in published.HYPERGRADIENT.items() if tables else ():
        powers = [f"1e-{power}" for power in range(6, 0, -1)]
        lines = [[lr, *(f"{value:.2f} %" for value in line)] for lr, line in zip(powers, cells, strict=True)]
        tables.append(Table(f"The paper's, {name} at full size", ["", *powers], lines))
    return tables


def variability(rows: Iterable[Row]) -> list[Table]:
    """Appendix A.5.2: every seed's result, mean and standard deviation."""
    tables = []
    groups = by_task_and_method(rows)
    for task in dict.fromkeys(task for task, _ in groups):
        lines = []
        for (its, method), group in groups.items():
            if its == task:
                lines.append([method, *_each(group)])
        tables.append(Table(f"Variability: {task}", ["method", "what", "by seed", "mean ± deviation"], lines))
    if tables:
        each = ", ".join(f"{value:.2f}" for value in published.VARIABILITY)
        tables.append(Table("The paper's, vgg16-cifar100 at full size", ["by seed", "mean ± deviation"],
                            [[each, f"{spread(published.VARIABILITY)} %"]]))  # fmt: skip
    return tables


def fine_tuning(rows: Iterable[Row]) -> list[Table]:
    """Section 5, BERT after fine-tuning; the best of a method's seeds, as the paper reports."""
    groups = {key: group for key, group in by_task_and_method(rows).items() if key[0].startswith("bert")}
    names = list(dict.fromkeys(name for group in groups.values() for row in group for name in row.get("further", {})))
    if not names:
        return []
    lines = []
    for (task, method), group in groups.items():
        best = [max((row["further"].get(name) or math.nan for row in group), default=math.nan) for name in names]
        lines.append([task, method, *map(percent, best)])
    for method, theirs in published.FINE_TUNING.items():
        lines.append(["paper's BERT base", method, *(f"{theirs[n]:.1f} %" if n in theirs else "-" for n in names)])
    return [Table("BERT after fine-tuning", ["task", "method", *names], lines)]


def _trials(
    rows: Iterable[Row], names: dict[str, int], theirs: published.Trials, title: str, shown: Sequence[str]
) -> list[Table]:
    """Trial by trial: when the target is reached, where the task has one, and what is reached in the end."""
    rows = list(rows)
    groups, prices = by_task_and_method(rows), evaluation_prices(rows)
    tables = []
    for task in dict.fromkeys(task for task, method in groups if method in names):
        known = TASKS.get(task.split(" ")[0])
        lines, timed = [], False
        for method in shown:
            if group := groups.get((task, method)):
                target = known.at(group[0].get("profile", "cpu")).target if known else None
                timed = target is not None
                when = [", ".join(_when(steps_to_accuracy(row, target)) for row in group)] if target else []
                cost = mean(worth(row, prices) / row["total_steps"] for row in group)
                lines.append([method, *when, *_each(group), f"{cost:.2f}"])
        columns = ["method", *(["step at the target"] if timed else []), "what", "by seed", "mean ± deviation", "cost"]
        tables.append(Table(f"{title}: {task}", columns, lines))
    if tables:
        lines = []
        for tau, trials in theirs.items():
            epochs = ", ".join("N/A" if epoch is None else str(epoch) for epoch, _ in trials)
            values = [accuracy for _, accuracy in trials]
            lines.append([f"{tau:,}", epochs, ", ".join(f"{value:.2f}" for value in values), f"{spread(values)} %"])
        columns = ["tau_max", "epoch at 93.70 %", "accuracy by trial", "mean ± deviation"]
        tables.append(Table(f"{title}: the paper's, VGG-16 on CIFAR-10 at full size", columns, lines))
    return tables


def _each(group: Sequence[Row]) -> list[str]:
    """What is measured, its value seed by seed, and mean and deviation of those that did not diverge."""
    accurate = all(row.get("accuracy") is not None for row in group)
    values = [100 * row["accuracy"] if accurate and row["test"] is not None else row["test"] for row in group]
    finite = [value for value in values if value is not None]
    digits, unit = (2, " %") if accurate else (4, "")
    each = ", ".join("diverged" if value is None else f"{value:.{digits}f}" for value in values)
    return ["accuracy" if accurate else "test loss", each, spread(finite, digits) + unit]


def _when(step: float) -> str:
    return "N/A" if math.isinf(step) else f"{step:,.0f}"


def _result(row: Row | None) -> str:
    if row is None:
        return "-"
    if row.get("accuracy") is not None:
        return percent(row["accuracy"])
    return "diverged" if row["test"] is None else f"{row['test']:.4f}"
