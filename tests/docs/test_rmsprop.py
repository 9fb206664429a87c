"""What docs/research-log.md says in "RMSprop and Adagrad" and "Averaging without a momentum", from recorded runs."""

from __future__ import annotations

import math
import runpy
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest

from autolrs.bench.tasks import TASKS

PEAKS = runpy.run_path(str(Path(__file__).parents[2] / "tools" / "peaks.py"))
ROWS = PEAKS["read"](PEAKS["RESULTS"] / "first-steps-products.jsonl")


def ratios(optimizer, part="test"):
    """Task -> the loss (or peak) by the new rule over that by the one before, in the geometric mean over two seeds."""
    ends = {(row["rule"], row["task"], row["seed"]): row[part] for row in ROWS if row["optimizer"] == optimizer}
    found = defaultdict(list)
    for (rule, task, seed), value in ends.items():
        if rule == "now":
            found[task].append(math.log(value / ends["before", task, seed]))
    assert len(found) == 22 and all(len(all_) == 2 for all_ in found.values())
    return {task: math.exp(np.mean(all_)) for task, all_ in found.items()}


def together(values):
    return float(np.exp(np.mean(np.log([*values]))))


@pytest.mark.parametrize(
    ("optimizer", "raised", "long", "short", "held"),
    [
        ("rmsprop", 3.2, 0.78, 0.51, 0.79),
        ("rmsprop9", 3.2, 0.82, 0.80, 0.93),
        ("adagrad", 7.1, 0.79, 0.43, 0.79),
    ],
)
def test_they_end_lower(optimizer, raised, long, short, held):
    found = ratios(optimizer)
    assert np.median([*ratios(optimizer, "peak").values()]) == pytest.approx(raised, abs=0.1)
    known = {task: one for task, one in found.items() if not TASKS[task].held_out}
    parts = [[one for task, one in known.items() if task.startswith("short-") == few] for few in (False, True)]
    assert [len(part) for part in parts] == [12, 5] and len(found) - len(known) == 5
    told = (*map(together, parts), together(found[task] for task in found if task not in known))
    assert told == pytest.approx((long, short, held), abs=0.006)


def test_together_three_quarters_and_at_no_cost():
    all_ = {(name, task): one for name in ("rmsprop", "rmsprop9", "adagrad") for task, one in ratios(name).items()}
    assert together(all_.values()) == pytest.approx(0.74, abs=0.006)
    assert max(row["cost"] for row in ROWS) <= 1.15
    worse = sorted((one, *key) for key, one in all_.items() if one > 1.04)
    assert [key for _, *key in worse] == [
        ["rmsprop", "fashion-cnn"],
        ["rmsprop9", "short-gru-adam"],
        ["adagrad", "kind-field"],
    ]
    assert [one for one, *_ in worse] == pytest.approx([1.05, 1.49, 2.4], abs=0.1)


def test_trained_on_the_way_to_the_average_most_end_lower_without_a_momentum_too():
    rows = PEAKS["read"](PEAKS["RESULTS"] / "no-momentum.jsonl")
    ends = {(row["task"], row["optimizer"], row["b"], row["seed"]): row["test"] for row in rows}
    told = {
        ("fashion-mlp", "sgd0"): (0.96, 0.99), ("fashion-mlp", "rmsprop"): (0.95, 0.99),
        ("fashion-mlp", "adagrad"): (0.94, 0.97), ("fashion-cnn", "sgd0"): (0.96, 0.99),
        ("fashion-cnn", "rmsprop"): (0.955, 0.96), ("bible-transformer", "rmsprop"): (0.99, 1.01),
        ("bible-transformer", "adagrad"): (0.99, 1.00), ("fashion-autoencoder", "rmsprop"): (0.93, 0.90),
        ("fashion-autoencoder", "adagrad"): (0.95, 0.91), ("bible-lstm", "sgd0"): (1.00, 1.00),
        ("bible-lstm", "rmsprop"): (1.00, 1.02), ("digits-mlp", "sgd0"): (1.09, 1.10),
        ("digits-mlp", "rmsprop"): (1.10, 1.11),
    }  # fmt: skip
    found = {
        case: [together(ends[(*case, b, seed)] / ends[(*case, 0.0, seed)] for seed in (101, 102)) for b in (0.684, 0.9)]
        for case in {key[:2] for key in ends if key[3] == 101}
    }
    assert found.keys() == told.keys()
    for case, ratios_ in found.items():
        assert ratios_ == pytest.approx(told[case], abs=0.006), case
    some = [one for one, _ in found.values()]
    others = [one for case, (one, _) in found.items() if case[0] != "digits-mlp"]
    assert (together(some), together(others)) == pytest.approx((0.985, 0.967), abs=0.001)


def test_in_short_runs_and_on_small_data_it_does_much_good_and_some_harm():
    rows = PEAKS["read"](PEAKS["RESULTS"] / "no-momentum.jsonl")
    ends = {(row["task"], row["optimizer"], row["b"], row["seed"]): row["test"] for row in rows}
    found = {
        case: together(ends[(*case, 0.684, seed)] / ends[(*case, 0.0, seed)] for seed in (103, 104, 105, 106))
        for case in {key[:2] for key in ends if key[3] == 103}
    }
    dead = found.pop(("short-cnn-adam", "sgd0"))
    assert dead == pytest.approx(0.38, abs=0.006) and len(found) == 20
    assert together(found.values()) == pytest.approx(0.944, abs=0.001)
    worse = {case: one for case, one in found.items() if one > 1.02}
    assert sorted(found, key=found.get)[:2] == [("uncentred-ink", "adagrad"), ("uncentred-ink", "rmsprop")]
    assert len(worse) == 7 and (min(worse.values()), max(worse.values())) == pytest.approx((1.095, 1.24), abs=0.003)
