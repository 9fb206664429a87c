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
        mine = sorted((one for one in scores if one.task == task), key=lambda one: one.loss)
        lines += [
            f"### {task}",
            "",
            "| method | test loss | over seeds | vs best tuned | cost | speedup | all counted |",
        ]
        lines.append("|---|---|---|---|---|---|---|")
        lines += [_row(one) for one in mine]
        lines.append("")
    lines += [
        "### Over tasks",
        "",
        "| method | tasks | loss ratio (geometric mean) | worst task | cost |",
        "|---|---|---|---|---|",
    ]
    for method, (tasks, ratio, worst, cost) in sorted(summary(scores).items(), key=lambda item: item[1][1]):
        lines.append(f"| {method} | {tasks} | {ratio:.3f} | {worst:.3f} | {cost:.2f} |")
    return "\n".join(lines) + "\n"


def _row(one: Score) -> str:
    loss = f"{one.loss:.4f}" if math.isfinite(one.loss) else "diverged"
    spread = f"±{one.spread:.4f} ({one.seeds})" if math.isfinite(one.spread) else f"({one.seeds})"
    speedup = f"{one.speedup:.2f}" if one.speedup else "not reached"
    whole = f"{one.speedup_all:.2f}" if one.speedup else "not reached"
    return f"| {one.method} | {loss} | {spread} | {one.ratio:.3f} | {one.cost:.2f} | {speedup} | {whole} |"
