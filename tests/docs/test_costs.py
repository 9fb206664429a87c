"""What docs/benchmarks.md says of costs, from the committed rows."""

from pathlib import Path
from statistics import mean

import pytest

from autolrs.bench.runner import read_rows
from autolrs.bench.score import evaluation_prices, label, worth

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"
ROWS = [row for name in ("horizon", "tables", "short") for row in read_rows(RESULTS / f"{name}.jsonl")]
PRICES = evaluation_prices(ROWS)


def costs(rows):
    found = {}
    for row in rows:
        if row["method"] == "horizon" and label(row) in PRICES:
            found.setdefault(row["task"], []).append(worth(row, PRICES) / row["total_steps"])
    return found


def test_every_run_of_the_default_stays_below_its_ceiling_with_validation_passes_at_their_weight():
    found = costs(ROWS)
    assert len(found) == 19 + 21
    dear = {task: [cost for cost in each if cost > 1.15 + 1e-9] for task, each in found.items()}
    # In these training broke, and stretches of a tenth of the run were tried again.
    broken = {"digits-cnn": [1.153, 1.153, 1.21, 1.23, 1.23], "short-residual-sgd": [1.188]}
    assert {task: pytest.approx(sorted(each), abs=0.001) for task, each in dear.items() if each} == broken


def test_rows_from_before_they_were_weighed_cost_more_than_was_told():
    before = {
        task: mean(each) for task, each in costs(read_rows(RESULTS / "retired" / "horizon-ten-passes.jsonl")).items()
    }
    told = {"resnet50-cifar10": 1.51, "vgg16-cifar10": 1.33, "vgg16-cifar100": 1.29, "fashion-vit": 1.18}
    assert {task: before[task] for task in told} == pytest.approx(told, abs=0.006)
