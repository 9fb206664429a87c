"""Tables of scores in Markdown."""

from __future__ import annotations

import math
from collections.abc import Iterable

from autolrs.bench.score import Score, summary


def headline(scores: Iterable[Score]) -> str:
    """One table per task and a summary; rows in ascending order of loss, so that who loses is seen."""
    scores = list(scores)
    lines: list[str] = []
    for task in dict.fromkeys(one.task for one in scores):
        lines += [
            f"### {task}",
            "",
            "| method | test loss | over seeds | vs best tuned | cost | speedup | all counted |",
            "|---|---|---|---|---|---|---|",
            *(_row(one) for one in sorted(scores, key=lambda one: one.loss) if one.task == task),
            "",
        ]
    lines += [
        "### Over tasks",
        "",
        "| method | tasks | loss ratio (geometric mean) | worst task | cost |",
        "|---|---|---|---|---|",
    ]
    summaries = sorted(summary(scores).items(), key=lambda item: (math.isnan(item[1].ratio), item[1].ratio))
    for method, one in summaries:
        lines.append(f"| {method} | {one.tasks} | {_fixed(one.ratio)} | {_fixed(one.worst)} | {one.cost:.2f} |")
    return "\n".join(lines) + "\n"


def _row(one: Score) -> str:
    loss = f"{one.loss:.4f}" if math.isfinite(one.loss) else "diverged"
    spread = f"±{one.spread:.4f} ({one.seeds})" if math.isfinite(one.spread) else f"({one.seeds})"
    speedups = f"{_speedup(one.speedup)} | {_speedup(one.speedup_all)}"
    return f"| {one.method} | {loss} | {spread} | {_fixed(one.ratio)} | {one.cost:.2f} | {speedups} |"


def _fixed(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.3f}"


def _speedup(value: float) -> str:
    if math.isnan(value):
        return "-"
    return f"{value:.2f}" if value else "not reached"
