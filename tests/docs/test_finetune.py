"""What docs/benchmarks.md and the research log say of fine-tuning, from the committed rows."""

import json
from math import prod
from pathlib import Path
from statistics import mean

import pytest

from autolrs.bench.runner import read_rows
from autolrs.bench.score import score
from autolrs.bench.tasks.finetune import FINETUNE

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"
SCORES = {(one.task, one.method): one for one in score(read_rows(RESULTS / "finetune.jsonl"))}
NAMES = [task.name for task in FINETUNE]


def test_how_far_above_the_better_tuned_schedule_they_end():
    ratios = [SCORES[name, "horizon"].ratio for name in NAMES]
    assert all(SCORES[name, "horizon"].seeds == 5 for name in NAMES)
    for part, expected in ((ratios, 1.028), (ratios[:4], 1.054), (ratios[4:], 1.014)):
        assert prod(part) ** (1 / len(part)) == pytest.approx(expected, abs=0.006)
    assert sum(ratio < 1.01 for ratio in ratios) == 4 and sum(ratio > 1.08 for ratio in ratios) == 4
    assert max(ratios) == pytest.approx(1.112, abs=0.006)


@pytest.mark.parametrize(
    ("name", "before", "now"),
    [
        ("bert", 1.184, 1.026),
        ("transformer", 1.009, 1.001),
        ("vit", 1.092, 1.092),
        ("testaments", 1.112, 1.112),
        ("vgg", 1.006, 1.051),
    ],
)
def test_what_knowing_of_an_earlier_training_is_worth(name, before, now):
    lines = (RESULTS / "peaks" / "finetune-as-new.jsonl").read_text().splitlines()
    tests = [row["test"] for row in map(json.loads, lines) if row["task"] == f"finetune-{name}"]
    ours = SCORES[f"finetune-{name}", "horizon"]
    assert len(tests) == 5
    assert (mean(tests) / ours.loss * ours.ratio, ours.ratio) == pytest.approx((before, now), abs=0.002)


def test_they_stay_within_their_cost():
    assert max(SCORES[name, "horizon"].cost for name in NAMES) < 1.155
