"""What docs/benchmarks.md says of short runs, from the committed rows."""

from math import prod
from pathlib import Path

import pytest

from autolrs.bench.runner import read_rows
from autolrs.bench.score import score
from autolrs.bench.tasks.short import SHORT

ROWS = read_rows(Path(__file__).parents[2] / "benchmarks" / "results" / "short.jsonl")


def mean(tasks):
    ratios = [one.ratio for one in score(ROWS) if one.method == "horizon" and one.task in tasks]
    assert len(ratios) == len(tasks)
    return prod(ratios) ** (1 / len(ratios))


def test_how_far_above_the_best_tuned_schedule_they_end():
    names = [task.name for task in SHORT]
    adam = [name for name in names if not name.endswith("sgd")]
    sgd = [name for name in names if name.endswith("sgd")]
    parts = (names, names[:16], adam, adam[6:], sgd[:4], sgd[4:])
    assert [len(part) for part in parts] == [21, 16, 12, 6, 4, 5]
    assert [mean(part) for part in parts] == pytest.approx([1.185, 1.077, 1.021, 1.179, 1.26, 1.61], abs=0.006)
