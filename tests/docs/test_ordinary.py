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


UNTUNED = ("cifar-residual-sgd", "cifar-groupnorm-sgd")  # no rival has been run there


def test_how_they_end_against_the_best_tuned_schedule_and_what_they_cost():
    ours = {task.name: SCORES[task.name, "horizon"] for task in ORDINARY}
    ratios = {name: one.ratio for name, one in ours.items() if name not in UNTUNED}
    assert len(ratios) == 6 and prod(ratios.values()) ** (1 / 6) == pytest.approx(0.994, abs=0.002)
    assert max(ratios, key=lambda name: ratios[name]) == "cifar-tanh-sgd"
    assert ratios["cifar-tanh-sgd"] == pytest.approx(1.023, abs=0.002)
    assert ratios["cifar-plain-sgd"] == pytest.approx(0.967, abs=0.002)
    assert ratios["cifar-mlp-sgd"] == pytest.approx(1.012, abs=0.002)
    assert max(one.cost for one in ours.values()) < 1.15
