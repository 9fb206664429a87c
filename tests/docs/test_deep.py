"""What docs/benchmarks.md says of deep networks by SGD, from the committed rows."""

from __future__ import annotations

import json
from math import prod
from pathlib import Path
from statistics import mean

import pytest

from autolrs.bench.runner import read_rows
from autolrs.bench.score import score
from autolrs.bench.tasks import TASKS

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"
ROWS = read_rows(RESULTS / "deep.jsonl")


def test_how_they_end_against_a_tuned_linear_decay_and_what_they_cost():
    ours = {one.task: one for one in score(ROWS) if one.method == "horizon"}
    ratios = {task: one.ratio for task, one in ours.items()}
    assert [task for task in ratios if not TASKS[task].held_out] == ["cifar-vgg-groupnorm-sgd"] and len(ratios) == 6
    assert prod(ratios.values()) ** (1 / 6) == pytest.approx(0.98, abs=0.003)
    assert sorted(ratios.values())[-2] < 1 < ratios["cifar-separable-sgd"] == pytest.approx(1.10, abs=0.005)
    assert max(one.cost for one in ours.values()) < 1.15


def test_what_sgds_usual_lr_did_to_them():
    ends = {(row["task"], row["seed"]): row for row in ROWS if row["method"] == "horizon"}
    before = [json.loads(line) for line in (RESULTS / "peaks" / "usual-sgd-before.jsonl").read_text().splitlines()]
    found = {}
    for task in {row["task"] for row in before}:
        runs = [row for row in before if row["task"] == task]
        assert len(runs) == 3
        found[task] = mean(row["test"] for row in runs) / mean(ends[task, row["seed"]]["test"] for row in runs)
    assert found.pop("cifar-separable-sgd") == pytest.approx(0.966, abs=0.001)
    assert found.pop("cifar-deeper-groupnorm-sgd") == pytest.approx(1.187, abs=0.001)
    assert all(ratio == pytest.approx(1, abs=0.003) for ratio in found.values()) and len(found) == 2
    assert {ends["cifar-separable-sgd", seed]["peak"] for seed in (1, 2)} == {0.03}
