"""The table of results: per task, losses and costs; then a summary over tasks, profiles and paired differences."""

from __future__ import annotations

import math
from collections.abc import Iterable

from autolrs.bench.score import Row, Score, paired, performance_profile, score, summary
from autolrs.bench.tables._table import Table, markdown, over_seeds, percent

FACTORS = (1.01, 1.02, 1.05, 1.1, 1.5)


def headline(scores: Iterable[Score]) -> str:
    """In Markdown."""
    return markdown(headline_tables(scores))


def headline_tables(scores: Iterable[Score]) -> list[Table]:
    """One table per task and a summary; rows in ascending order of loss, so that who loses is seen."""
    scores = list(scores)
    tables = []
    for task in dict.fromkeys(one.task for one in scores):
        mine = sorted((one for one in scores if one.task == task), key=lambda one: one.loss)
        accurate = any(not math.isnan(one.accuracy) for one in mine)
        columns = ["method", "test loss", "over seeds", "vs best tuned", "cost", "speedup", "all counted", "tuning"]
        if accurate:
            columns.insert(3, "accuracy")
        tables.append(Table(task, columns, [_row(one, accurate) for one in mine]))
    summaries = sorted(summary(scores).items(), key=lambda item: (math.isnan(item[1].ratio), item[1].ratio))
    rows = [
        [method, str(one.tasks), _fixed(one.ratio), _fixed(one.worst), _fixed(one.spread), f"{one.cost:.2f}"]
        for method, one in summaries
    ]
    columns = ["method", "tasks", "loss ratio (geometric mean)", "worst task", "spread ratio", "cost"]
    return [*tables, Table("Over tasks", columns, rows)]


def profiles(rows: Iterable[Row]) -> list[Table]:
    """Share of tasks within a factor of the lowest loss of any method."""
    found = performance_profile(score(rows), FACTORS)
    lines = [[method, *(f"{share:.2f}" for share in shares)] for method, shares in found.items()]
    lines.sort(key=lambda line: [-float(cell) for cell in line[1:]])
    return [Table("Share of tasks within a factor of the lowest loss", ["method", *map(str, FACTORS)], lines)]


def differences(rows: Iterable[Row], against: str = "cosine") -> list[Table]:
    """Every method against one, on the same seeds."""
    found = paired(rows, against)
    tables = []
    for task in dict.fromkeys(one.task for one in found):
        lines = [
            [one.method, str(one.seeds), percent(one.difference), percent(one.error), f"{one.wins} of {one.seeds}"]
            for one in sorted(found, key=lambda one: (math.isnan(one.difference), one.difference))
            if one.task == task
        ]
        columns = ["method", "seeds", "loss against it", "standard error", "lower on"]
        tables.append(Table(f"{task}: against {against}, seed by seed", columns, lines))
    return tables


def _row(one: Score, accurate: bool) -> list[str]:
    loss = f"{one.loss:.4f}" if math.isfinite(one.loss) else "diverged"
    cells = [
        one.method,
        loss,
        over_seeds(one.spread, one.seeds),
        _fixed(one.ratio),
        f"{one.cost:.2f}",
        _speedup(one.speedup),
    ]
    cells += [_speedup(one.speedup_all), f"{one.tuning:.0f} runs" if one.tuning else "-"]
    if accurate:
        cells.insert(3, percent(one.accuracy))
    return cells


def _fixed(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.3f}"


def _speedup(value: float) -> str:
    if math.isnan(value):
        return "-"
    return f"{value:.2f}" if value else "not reached"
