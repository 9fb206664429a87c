"""What docs/research-log.md says in "Longer runs, once more", from the recorded runs."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import fmean, geometric_mean

import pytest

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results" / "peaks"
ROWS = [json.loads(line) for line in (RESULTS / "longer-products.jsonl").read_text().splitlines()]


def test_against_a_linear_decay_whose_best_peak_of_four_lies_inside_them():
    ratios = {}
    for task in {row["task"] for row in ROWS}:
        tuned = {row["peak"]: row["validation"] for row in ROWS if row["task"] == task and row["seed"] == 100}
        best = min(tuned, key=tuned.get)
        assert len(tuned) == 4 and min(tuned) < best < max(tuned)
        ends = {
            rule: {row["seed"]: row for row in ROWS if (row["task"], row["rule"]) == (task, rule) and row["seed"] < 100}
            for rule in ("linear", "horizon")
        }
        assert {row["peak"] for row in ends["linear"].values()} == {best}
        assert ends["linear"].keys() == ends["horizon"].keys() == {0, 1}
        assert max(row["cost"] for row in ends["horizon"].values()) < 1.15
        losses = {rule: fmean(row["test"] for row in runs.values()) for rule, runs in ends.items()}
        ratios[task.split(":")[0]] = losses["horizon"] / losses["linear"]
    told = {"fashion-mlp": 1.033, "bible-lstm": 0.999, "fashion-cnn": 0.970}
    assert ratios == pytest.approx({**told, "bible-transformer": 0.984, "fashion-autoencoder": 0.990}, abs=0.001)
    assert geometric_mean(ratios.values()) == pytest.approx(0.995, abs=0.001)
