"""What docs/benchmarks.md says of small networks by SGD, from the committed rows."""

from math import prod
from pathlib import Path

import pytest

from autolrs.bench.runner import read_rows
from autolrs.bench.score import score
from autolrs.bench.tasks.sgd import SGD_TASKS

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"
NAMES = [task.name for task in SGD_TASKS]
ROWS = read_rows(RESULTS / "sgd.jsonl")
RIVALS = [row for row in ROWS if row["method"] != "horizon"]
BEFORE = read_rows(RESULTS / "retired" / "horizon-sgd-before-slow-ramp.jsonl")


def ratios(rows, method="horizon"):
    found = {one.task: one.ratio for one in score(rows) if one.method == method}
    return [min(max(found[name], 0.1), 10.0) for name in NAMES]


def mean(values):
    return prod(values) ** (1 / len(values))


def far_above(rows):
    """Tasks of the runs that ended above four times the best schedule's loss."""
    best = {one.task: one.loss / one.ratio for one in score(rows) if one.method == "linear"}
    ours = [row for row in rows if row["method"] == "horizon"]
    assert len(ours) == 5 * len(NAMES)
    return [row["task"] for row in ours if row["test"] is None or row["test"] > 4 * best[row["task"]]]


def test_how_far_above_the_best_tuned_schedule_they_end_and_did_before():
    held_out = [task.held_out for task in SGD_TASKS]
    assert held_out == [False] * 19 + [True] * 8
    now, before = ratios(ROWS), ratios([*RIVALS, *BEFORE])
    for found, expected in ((now, (1.09, 1.58, 1.22)), (before, (1.64, 1.93, 1.72))):
        assert (mean(found[:19]), mean(found[19:]), mean(found)) == pytest.approx(expected, abs=0.01)
    others = [ratio for name, ratio in zip(NAMES, now, strict=True) if name not in ("sgd-deep", "sgd-sums-long")]
    assert mean(others[19:]) == pytest.approx(1.07, abs=0.01)
    assert mean(ratios(ROWS, "linear")) == pytest.approx(1.12, abs=0.01)


def test_how_they_ended_by_the_first_form():
    first = ratios([*RIVALS, *read_rows(RESULTS / "retired" / "horizon-sgd-first-slow-ramp.jsonl")])
    assert (mean(first[:19]), mean(first[19:])) == pytest.approx((1.36, 1.86), abs=0.01)


def test_fewer_runs_fail():
    now, before = far_above(ROWS), far_above([*RIVALS, *BEFORE])
    assert len(before) == 18 and sorted(now) == ["sgd-deep", "sgd-digits-long", *["sgd-sums-long"] * 3]


def test_they_stay_within_their_cost_but_where_training_breaks():
    costs = {one.task: one.cost for one in score(ROWS) if one.method == "horizon"}
    assert [name for name, cost in costs.items() if cost > 1.1505] == ["sgd-deep"]
