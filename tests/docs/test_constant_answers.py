"""What docs/research-log.md says in "What a constant answer leaves", from the recorded searches and whole runs."""

from __future__ import annotations

import math
import runpy
from collections import defaultdict
from pathlib import Path
from statistics import fmean, geometric_mean

import numpy as np
import pytest

from autolrs.bench.runner import read_rows
from autolrs.bench.score import score
from autolrs.bench.tasks import TASKS
from autolrs.core.strategies.horizon_answers import FAR_BELOW
from autolrs.core.strategies.horizon_peak import centre, shortfalls

PEAKS = runpy.run_path(str(Path(__file__).parents[2] / "tools" / "peaks.py"))


def read(name):
    return PEAKS["read"](PEAKS["RESULTS"] / f"constant-{name}.jsonl")


def lost_at():
    """Task -> a function: peak -> log of the loss there over that at the best peak, in the mean over whole runs; below
    the lowest peak as it goes down to it."""
    ends, found = defaultdict(lambda: defaultdict(list)), {}
    for row in read("runs"):
        ends[row["task"]][row["peak"]].append(math.log(row["test"]))
    for task, peaks in ends.items():
        octaves, losses = np.log2(sorted(peaks)), np.array([np.mean(peaks[peak]) for peak in sorted(peaks)])

        def lost(peak, x=octaves, y=losses):
            below = max(x[0] - math.log2(peak), 0.0) * (y[0] - y[1]) / (x[1] - x[0])
            return float(np.interp(math.log2(peak), x, y) + below - y.min())

        found[task] = lost
    return found


LOST = lost_at()
SEARCHES = [row for row in read("searches") if row["task"] in LOST]
WITH_NORMS = [row for row in SEARCHES if row["usual"] and not row["task"].endswith(":adamw")]


def lost(peak, rows=WITH_NORMS):
    found = defaultdict(list)
    for row in rows:
        found[row["task"]].append(LOST[row["task"]](peak(row)))
    return {task: float(np.mean(all_)) for task, all_ in found.items()}


def search(row):
    return row["peak"]


def usual(row):
    return row["usual"] / 2


def half_way(row):
    return PEAKS["after_deep_fall"](row["peak"], usual(row), math.inf)


def however_far(row):
    return math.sqrt(row["peak"] * usual(row))


def from_octaves_below(octaves):
    def peak(row):
        losses = {
            round(math.log2(lr / row["landmark"])): math.inf if loss is None else loss for lr, loss in row["minis"]
        }
        middle = row["landmark"] * 2.0 ** centre(shortfalls(losses, row["start"]))
        return usual(row) if math.log2(usual(row) / middle) > octaves else row["peak"]

    return peak


def mean(found):
    return float(np.mean([*found.values()]))


def test_far_below_what_is_usual_that_is_better_than_the_search():
    assert FAR_BELOW == 2.5 and len({row["task"] for row in WITH_NORMS}) == 9
    by = [mean(lost(from_octaves_below(octaves))) for octaves in (2.0, FAR_BELOW, 3.0, 4.0)]
    assert by == pytest.approx([0.026, 0.023, 0.023, 0.036], abs=0.001)
    others = [mean(lost(peak)) for peak in (search, usual, half_way, however_far)]
    assert others == pytest.approx([0.163, 0.030, 0.157, 0.068], abs=0.001)


def test_rare_classes_with_norms_failed_and_no_others():
    found = lost(search)
    rare = {task: found.pop(f"prior-rare-{task}") for task in ("batchnorm", "groupnorm", "transformer")}
    assert min(rare.values()) > 0.14 and max(found.values()) < 0.044
    without = lost(search, [row for row in SEARCHES if row["usual"] is None])
    assert sorted(without.values()) == pytest.approx([0.014, 0.050], abs=0.001)
    adamw = lost(search, [row for row in SEARCHES if row["task"].endswith(":adamw")])
    assert len(adamw) == 4 and max(adamw.values()) < 0.056
    peaks = [row["peak"] for row in WITH_NORMS if row["task"] in ("prior-rare-batchnorm", "prior-rare-groupnorm")]
    assert max(peaks) < 0.00055


def products():
    """Task -> the loss by the rule of now over that by the one before, in the geometric mean over seeds."""
    ends, found = {(row["rule"], row["task"], row["seed"]): row["test"] for row in read("products")}, defaultdict(list)
    for (rule, task, seed), test in ends.items():
        if rule == "now":
            found[task].append(math.log(test / ends["before", task, seed]))
    return {task: math.exp(np.mean(all_)) for task, all_ in found.items()}


def test_whole_runs_of_the_product_end_lower():
    found = {task.removeprefix("prior-"): ratio for task, ratio in products().items()}
    expected = {"rare-batchnorm": 0.61, "rare-groupnorm": 0.49, "rare-transformer": 0.91}
    held_out = {"rare-residual": 0.93, "rare-deep": 0.96, "hundred-deeper": 1.0, "ink": 1.0}
    assert all(TASKS[f"prior-{task}"].held_out for task in held_out)
    for task, ratio in {**expected, **held_out}.items():
        assert found[task] == pytest.approx(ratio, abs=0.005), task
    assert max(row["cost"] for row in read("products")) < 1.151


def test_sums_over_a_batch_go_by_the_edge_of_divergence():
    ends = defaultdict(list)
    for row in read("products"):
        if row["task"].endswith(":x32"):
            ends[row["task"].removesuffix("-sgd:x32"), row["rule"]].append(row["test"])
    names = [f"cifar-{name}" for name in ("vgg-groupnorm", "preact-groupnorm", "transformer", "deep-vgg")]
    before, now = ([np.mean(ends[name, rule]) for name in names] for rule in ("before", "now"))
    assert before == pytest.approx([1.81, 1.33, 1.36, 1.15], abs=0.006)
    assert now == pytest.approx([1.45, 1.24, 1.24, 1.15], abs=0.006)


def test_vgg16_cifar100_wants_less_than_is_usual_after_the_longest_warm_up_too():
    ends = {(row["warmup"], row["peak"], row["seed"]): row["test"] for row in read("vgg16-cifar100")}
    after = [np.mean([ends[0.3, peak, seed] for seed in (201, 202, 203, 204)]) for peak in (0.0075, 0.015, 0.03, 0.06)]
    assert after == pytest.approx([1.34, 1.30, 1.40, 1.53], abs=0.006)
    both = [(peak, seed) for warmup, peak, seed in ends if warmup == 0.15]
    lower = [1 - ends[0.3, peak, seed] / ends[0.15, peak, seed] for peak, seed in both]
    assert len(both) == 6 and np.mean(lower) == pytest.approx(0.036, abs=0.001) and min(lower) > 0.02


def test_a_longer_warm_up_does_nothing_for_them():
    ends, found = {}, defaultdict(list)
    for row in PEAKS["read"](PEAKS["RESULTS"] / "norms-warmups.jsonl"):
        ends.setdefault((row["task"], row["seed"]), []).append((row["warmup"], row["test"]))
    for (task, _), ((own, before), (longer, after)) in ends.items():
        assert own < longer == 0.3
        found[task].append(math.log(after / before))
    changes = [np.mean(all_) for all_ in found.values()]
    assert len(changes) == 12 and np.mean(changes) == pytest.approx(-0.003, abs=0.0005)
    assert (min(changes), max(changes)) == pytest.approx((-0.044, 0.016), abs=0.001)
    assert np.mean(found["fashion-cnn"]) == max(changes)


def test_slow_ramps_that_had_not_broken_tell_the_peak_no_worse():
    lost, losses = PEAKS["lost_at"](PEAKS["read"](PEAKS["SLOW_RUNS"])), defaultdict(list)
    for row in PEAKS["read"](PEAKS["RAMPS"]):
        for ramp in row["ramps"]:
            if (ramp["steps"], ramp["octaves"]) == (40, 8):
                found = PEAKS["breaks"](ramp)
                lost_there = np.interp(math.log2(found) - 2.25, *lost[row["task"]])
                losses[found > 0.999 * ramp["lrs"][1]].append(lost_there)
    assert [len(losses[unbroken]) for unbroken in (True, False)] == [18, 90]
    assert [np.mean(losses[unbroken]) for unbroken in (True, False)] == pytest.approx([0.118, 0.229], abs=0.002)


def test_against_a_tuned_linear_decay():
    rows = read_rows(PEAKS["RESULTS"].parent / "priors.jsonl")
    ours = {one.task: one for one in score(rows) if one.method == "horizon"}
    ratios = {task: one.ratio for task, one in ours.items()}
    worst = ratios["prior-hundred-deeper"]
    assert len(ratios) == 8 and worst == pytest.approx(1.085, abs=0.003)
    assert [sum(ratio < bound for ratio in ratios.values()) for bound in (0.93, 0.99, 1.0)] == [0, 7, 7]
    held_out = [ratio for task, ratio in ratios.items() if TASKS[task].held_out]
    assert len(held_out) == 4 and geometric_mean(held_out) == pytest.approx(0.98, abs=0.003)
    assert geometric_mean(ratios.values()) == pytest.approx(0.974, abs=0.001)
    assert max(one.cost for one in ours.values()) < 1.15
    low = [row for row in rows if row["method"] == "horizon" and row["peak"] < 0.01]
    others = {
        row["task"]: [x["test"] for x in rows if x not in low and (x["task"], x["method"]) == (row["task"], "horizon")]
        for row in low
    }
    more = sorted(row["test"] / fmean(others[row["task"]]) for row in low)
    assert [all("rare-" in task for task in others), len(more)] == [True, 4]
    assert more == pytest.approx([1.04, 1.08, 1.14, 1.17], abs=0.006)
