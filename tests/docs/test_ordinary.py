"""What docs/benchmarks.md says of ordinary jobs, from the committed rows."""

from math import prod
from pathlib import Path

import pytest

from autolrs.bench.runner import read_rows
from autolrs.bench.score import score
from autolrs.bench.tasks.ordinary import ORDINARY

SCORES = {
    (one.task, one.method): one
    for one in score(read_rows(Path(__file__).parents[2] / "benchmarks" / "results" / "ordinary.jsonl"))
}


def test_how_they_end_against_the_best_tuned_schedule_and_what_they_cost():
    ours = {task.name: SCORES[task.name, "horizon"] for task in ORDINARY}
    assert {name.removeprefix("cifar-"): one.ratio for name, one in ours.items()} == pytest.approx(RATIOS, abs=0.002)
    assert prod(RATIOS.values()) ** (1 / len(RATIOS)) == pytest.approx(MEAN, abs=0.002)
    assert max(one.cost for one in ours.values()) < 1.15
