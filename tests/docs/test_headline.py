"""What docs/benchmarks.md says in words of the headline, from the committed rows."""

import runpy
from math import log2
from pathlib import Path
from statistics import linear_regression, mean, stdev

import numpy as np
import pytest

from autolrs.bench.runner import read_rows
from autolrs.bench.score import TUNED_SCHEDULES, score, summary

PAGE = runpy.run_path(str(Path(__file__).parents[2] / "tools" / "benchmarks_page.py"))
RESULTS, TASK = PAGE["RESULTS"], "digits-cnn"
ROWS = [
    row
    for path in sorted(RESULTS.glob("*.jsonl"))
    for row in read_rows(path)
    if row["task"] in PAGE["HEADLINE_TASKS"] and row["method"] in PAGE["HEADLINE_METHODS"]
]


def test_mean_worst_task_and_spread_over_seeds():
    found = summary(score(ROWS))
    ours = found["horizon"]
    assert (ours.ratio, ours.worst, ours.spread) == pytest.approx((0.978, 1.024, 1.008), abs=0.002)
    assert [found[name].spread for name in ("wsd", "linear", "cosine")] == pytest.approx([1.07, 0.95, 0.90], abs=0.006)


def test_the_schedule_alone_is_no_worse_than_a_tuned_linear_one():
    found = summary(score(ROWS))
    plain = found["horizon-plain"]
    assert (plain.ratio, plain.worst, plain.spread) == pytest.approx((1.017, 1.052, 0.806), abs=0.003)
    assert found["linear"].ratio == pytest.approx(1.025, abs=0.002)
    costs = [one.cost for one in score(ROWS) if one.method == "horizon-plain"]
    assert max(costs) < 1.155


def test_by_the_number_of_seeds_the_spread_is_known_to_five_hundredths():
    variances = []
    for task in PAGE["HEADLINE_TASKS"]:
        found = {one.method: one for one in score(ROWS) if one.task == task}
        best = min((found[name] for name in TUNED_SCHEDULES if name in found), key=lambda one: one.loss)
        # The logarithm of a standard deviation of n normal numbers has a variance of about 1 / 2 (n - 1).
        variances.append(sum(1 / (2 * (one.seeds - 1)) for one in (found["horizon"], best)))
    assert sum(variances) ** 0.5 / len(variances) == pytest.approx(0.052, abs=0.002)


def test_on_the_five_seeds_of_before_the_spread_is_wider():
    more = ("digits-mlp", "digits-cnn")
    five = [row for row in ROWS if row["task"] in more or row["phase"] != "report" or row["seed"] < 5]
    assert summary(score(five))["horizon"].spread == pytest.approx(1.24, abs=0.006)


def test_with_one_peak_for_all_seeds_the_spread_would_be_met():
    """What is left of it after a parabola of the loss over the peak (a line, where there are two peaks)."""
    ratios = []
    for task in PAGE["HEADLINE_TASKS"]:
        found = {one.method: one for one in score(ROWS) if one.task == task}
        best = min((found[name] for name in TUNED_SCHEDULES if name in found), key=lambda one: one.loss).method
        runs = reported(task, "horizon").values()
        peaks, losses = (np.log2([row[part] for row in runs]) for part in ("peak", "test"))
        degree = min(2, len({*peaks.round(4)}) - 1)
        fitted = np.polyval(np.polyfit(peaks - peaks.mean(), losses, degree), peaks - peaks.mean())
        left = (((losses - fitted) ** 2).sum() / (len(peaks) - degree - 1)) ** 0.5
        ratios.append(left / np.log2([row["test"] for row in reported(task, best).values()]).std(ddof=1))
    assert np.exp(np.log(ratios).mean()) == pytest.approx(0.98, abs=0.01)


@pytest.mark.parametrize(
    ("name", "rise", "error"), [("horizon-short-warm-up", 0.020, 0.0225), ("horizon-sharper-mean", 0.006, 0.0136)]
)
def test_on_digits_cnn_what_was_changed_is_level_with_what_was_before(name, rise, error):
    def losses(path):
        rows = [row for row in read_rows(path) if (row["task"], row["method"]) == ("digits-cnn", "horizon")]
        return {row["seed"]: row["test"] for row in rows}

    before, now = (losses(RESULTS / "retired" / f"{one}.jsonl") for one in (name, "horizon-search-alone"))
    pairs = [now[seed] - before[seed] for seed in before]
    assert len(pairs) == 60
    usual = mean(before.values())
    assert (mean(pairs) / usual, stdev(pairs) / 60**0.5 / usual) == pytest.approx((rise, error), abs=0.001)


def reported(task, method):
    return {row["seed"]: row for row in ROWS if (row["task"], row["method"], row["phase"]) == (task, method, "report")}


def test_on_the_validation_images_of_digits_cnn_it_is_below_the_tuned_cosine():
    ours, cosine = reported(TASK, "horizon"), reported(TASK, "cosine")
    for part, ratio, error in (("test", 1.024, 0.014), ("validation", 0.961, 0.015)):
        usual = mean(row[part] for row in cosine.values())
        pairs = [(ours[seed][part] - cosine[seed][part]) / usual for seed in cosine]
        assert (1 + mean(pairs), stdev(pairs) / 199**0.5) == pytest.approx((ratio, error), abs=0.002)


def test_vgg16_cifar100_loses_by_too_high_a_peak():
    runs = reported("vgg16-cifar100", "horizon").values()
    slope, _ = linear_regression([log2(row["peak"]) for row in runs], [row["test"] for row in runs])
    assert slope / mean(row["test"] for row in runs) == pytest.approx(0.06, abs=0.006)


def test_the_ratio_on_digits_cnn_is_known_to_two_per_cent():
    tests = {
        method: [row["test"] for row in ROWS if (row["task"], row["method"], row["phase"]) == (TASK, method, "report")]
        for method in ("horizon", "cosine")
    }
    assert {method: len(all_) for method, all_ in tests.items()} == {"horizon": 199, "cosine": 199}
    errors = [stdev(all_) / mean(all_) / 199**0.5 for all_ in tests.values()]
    assert sum(error**2 for error in errors) ** 0.5 == pytest.approx(0.019, abs=0.001)


def test_by_the_first_form_of_sgds_usual_lr_run_on_the_same_seeds_the_spread_was_wider():
    first = read_rows(RESULTS / "retired" / "horizon-half-way-to-usual-sgd.jsonl")
    ran = {(row["task"], row["seed"]) for row in first}
    others = [row for row in ROWS if row["method"] != "horizon" or (row["task"], row["seed"]) not in ran]
    found = summary(score([*others, *first]))["horizon"]
    assert len(ran) == 40 and (found.ratio, found.spread) == pytest.approx((0.978, 1.042), abs=0.003)
