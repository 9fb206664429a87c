"""What docs/research-log.md says in "What is usual of SGD" and "RAdam", from the recorded searches and whole runs."""

from __future__ import annotations

import math
import runpy
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest

PEAKS = runpy.run_path(str(Path(__file__).parents[2] / "tools" / "peaks.py"))


PLAIN = ("vgg-groupnorm", "preact-groupnorm", "deep-vgg", "transformer")


def read(name):
    return PEAKS["read"](PEAKS["RESULTS"] / f"{name}.jsonl")


def lost_at():
    """Task -> a function: peak -> log of the loss there over that at the best peak, in the mean over whole runs."""
    ends, found = defaultdict(lambda: defaultdict(list)), {}
    for row in read("usual-sgd-runs"):
        ends[row["task"], row["warmup"]][row["peak"]].append(math.log(row["test"]))
    for (task, _), peaks in sorted(ends.items(), key=lambda one: one[0][1]):  # after the longest warm-up, if there is
        octaves, losses = np.log2(sorted(peaks)), np.array([np.mean(peaks[peak]) for peak in sorted(peaks)])
        found[task] = lambda peak, x=octaves, y=losses: float(np.interp(math.log2(peak), x, y) - y.min())
    return found


def lost(by_edge, peak=lambda row: row["peak"]):
    """Task -> what its searches lose by such a peak, by whether nothing was learned in miniature."""
    losses, found = lost_at(), defaultdict(list)
    for row in read("usual-sgd-searches"):
        if row["task"] in losses and row["by_edge"] == by_edge:
            found[row["task"]].append(losses[row["task"]](peak(row)))
    return {task: float(np.mean(all_)) for task, all_ in found.items()}


def usual(row):
    return row["usual"] / 2


def half_way(row):
    return PEAKS["after_deep_fall"](row["peak"], usual(row), math.inf)


def mean(found):
    return np.mean([*found.values()])


def test_where_nothing_is_learned_what_is_usual_loses_less_than_the_edge_of_divergence():
    edge, half, whole = (lost(True, peak) for peak in (lambda row: row["peak"], half_way, usual))
    assert len(edge) == 4 and sum(row["by_edge"] for row in read("usual-sgd-searches")) == 14
    assert (mean(edge), mean(half), mean(whole)) == pytest.approx((0.044, 0.020, 0.015), abs=0.001)
    assert edge["cifar-vgg-groupnorm-sgd"] == pytest.approx(0.129, abs=0.001)
    assert whole["cifar-vgg-groupnorm-sgd"] == pytest.approx(0.018, abs=0.001)


def test_where_miniature_runs_tell_the_peak_they_know_more():
    search, half, whole = (lost(False, peak) for peak in (lambda row: row["peak"], half_way, usual))
    assert len(search) == 6
    assert (mean(search), mean(half), mean(whole)) == pytest.approx((0.008, 0.006, 0.0175), abs=0.001)


def test_without_averaging_it_is_half():
    losses, tasks = lost_at(), [f"cifar-{name}-sgd:plain" for name in PLAIN]
    whole, half = (np.mean([losses[task](peak) for task in tasks]) for peak in (0.03, 0.015))
    assert (whole, half) == pytest.approx((0.047, 0.017), abs=0.001)


def ratios(name):
    """Task -> the loss by the new rule over that by the one before, in the geometric mean over seeds."""
    ends, found = {(row["rule"], row["task"], row["seed"]): row["test"] for row in read(name)}, defaultdict(list)
    for (rule, task, seed), test in ends.items():
        if rule == "now":
            found[task].append(math.log(test / ends["before", task, seed]))
    assert all(len(all_) == len(ends) / 2 / len(found) for all_ in found.values())
    return {task: math.exp(np.mean(all_)) for task, all_ in found.items()}


def together(found):
    return float(np.exp(np.mean(np.log([*found.values()]))))


HELD_OUT = ("shakespeare-gru", "short-lstm-adam", "short-formula-adam", "short-clusters-nadam", "cifar-mlp-adam",
            "kind-equation", "kind-denoising", "kind-deep-tanh", "kind-contrast")  # fmt: skip


def test_radam_ends_lower():
    found = ratios("rectified-products")
    held, others = ({t: r for t, r in found.items() if (t in HELD_OUT) == one} for one in (True, False))
    assert (len(held), len(others)) == (9, 12)
    assert (together(held), together(others)) == pytest.approx((0.879, 0.884), abs=0.001)
    long = {task: ratio for task, ratio in found.items() if not task.startswith("short-")}
    assert (len(long), together(long)) == (12, pytest.approx(0.754, abs=0.002))
    assert together({t: r for t, r in found.items() if t not in long}) == pytest.approx(1.087, abs=0.002)
    assert max(found, key=found.get) == "short-formula-adam" and max(long.values()) < 1.02


def test_peaks_of_radam_were_six_times_as_high():
    rows = {(row["rule"], row["task"], row["seed"]): row["peak"] for row in read("rectified-products")}
    far = [rows["before", t, s] / rows["now", t, s] for r, t, s in rows if r == "now" and not t.startswith("short-")]
    assert np.median(far) == pytest.approx(6.3, abs=0.1) and max(far) < 22
    assert max(row["cost"] for row in read("rectified-products")) < 1.151


def test_the_recorded_tasks_are_in_the_benchmark():
    from autolrs.bench.tasks import TASKS

    names = {
        row["task"].removesuffix(":plain") for name in ("usual-sgd-runs", "usual-sgd-searches") for row in read(name)
    }
    assert names < TASKS.keys() and not any(TASKS[name].held_out for name in names)


def test_sgd_ends_lower_where_a_network_had_died_and_about_the_same_elsewhere():
    from autolrs.bench.tasks import TASKS

    found = ratios("usual-sgd-products")
    held = {task: ratio for task, ratio in found.items() if TASKS[task].held_out}
    assert (len(held), together(held)) == (5, pytest.approx(0.951, abs=0.001))
    assert held["cifar-deeper-groupnorm-sgd"] == pytest.approx(0.762, abs=0.001)
    assert max(found.values()) == held["cifar-post-norm-sgd"] == pytest.approx(1.030, abs=0.001)
    others = [ratio for task, ratio in found.items() if task not in held]
    assert sorted(others) == pytest.approx([0.954, 1.000, 1.001, 1.004], abs=0.001)
