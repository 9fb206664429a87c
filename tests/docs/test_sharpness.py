"""What docs/research-log.md says of a sharper average, longer runs and ordinary jobs, from the recorded runs."""

from __future__ import annotations

import json
import runpy
from collections import Counter, defaultdict
from pathlib import Path

import numpy as np
import pytest

from autolrs.bench.runner import read_rows
from autolrs.bench.score import TUNED_SCHEDULES, score, summary
from autolrs.core.averaging import SHARPNESS

FOLDER = Path(__file__).parents[2] / "benchmarks" / "results" / "peaks"
RETIRED = FOLDER.parent / "retired"


def read(name):
    return [json.loads(line) for line in (FOLDER / f"{name}.jsonl").read_text().splitlines()]


def losses(task, *, searched, **wanted):
    """Seed -> log of the test loss of the runs with these numbers."""
    wanted = {"hold": 0.5, "decay_to": 0.1, **wanted}
    rows = [row for row in read("sharpness") if row["task"] == task and row["searched"] == searched]
    rows = [row for row in rows if row.get("lower_by", 0.0) == 0 and all(row[k] == v for k, v in wanted.items())]
    return {row["seed"]: np.log(row["test"]) for row in rows}


def against(task, sharpness, *, searched=True, **wanted):
    """Per cent by which runs end above those with t^5, on the same seeds; and their number."""
    now, before = (losses(task, searched=searched, sharpness=one, **wanted) for one in (sharpness, 5))
    pairs = [now[seed] - before[seed] for seed in now.keys() & before.keys()]
    return 100 * float(np.mean(pairs)), len(pairs)


@pytest.mark.parametrize(
    ("task", "peak", "spreads", "means"),
    [("fashion-mlp", 0.0062, (0.92, 1.08, 0.79), (-0.8, 0.9)), ("fashion-cnn", 0.042, (1.32, 1.17, 0.90), (0.0, 0.2))],
)
def test_at_one_peak_seeds_differ_less_by_a_sharper_average(task, peak, spreads, means):
    found = [losses(task, searched=False, sharpness=sharpness, peak=peak) for sharpness in (3, 5, 9)]
    seeds = sorted(set.intersection(*map(set, found)))
    assert len(seeds) >= 28
    deviations = [100 * np.std([one[seed] for seed in seeds], ddof=1) for one in found]
    assert deviations == pytest.approx(spreads, abs=0.03)
    for sharpness, mean in zip((3, 9), means, strict=True):
        assert against(task, sharpness, searched=False, peak=peak)[0] == pytest.approx(mean, abs=0.12)


def test_on_other_seeds_a_sharper_one_was_level_in_long_runs_and_better_in_short_ones():
    assert SHARPNESS == 5
    long = {"fashion-autoencoder": -0.7, "bible-lstm": 0.2, "digits-mlp": -0.2}
    assert {task: against(task, 9)[0] for task in long} == pytest.approx(long, abs=0.06)
    large = ("transformer-wmt14", "bert-pretraining", "vgg16-cifar10", "vgg16-cifar100", "resnet50-cifar10")
    found = [against(task, 9) for task in large]
    assert np.mean([mean for mean, _ in found]) == pytest.approx(-0.1, abs=0.25)
    assert {count for _, count in found} <= {2, 3}
    short = {row["task"] for row in read("sharpness") if row["task"].startswith("short-")}
    assert len(short) == 9
    assert np.mean([against(task, 9)[0] for task in short]) == pytest.approx(-5, abs=0.2)
    sharper = {"fashion-autoencoder": -1.0, "bible-lstm": 0.6, "digits-mlp": 4.9}
    assert {task: against(task, 14)[0] for task in sharper} == pytest.approx(sharper, abs=0.06)


SHARPER = read_rows(FOLDER.parent / "retired" / "horizon-sharper-average.jsonl")


SLOW = ("transformer-wmt14", "bert-pretraining", "resnet50-imagenet", "fashion-vit")
SLOW += ("vgg16-cifar10", "vgg16-cifar100", "resnet50-cifar10")


def by_default():
    """The default's rows of the same tasks and seeds; those of before its peaks moved, where they did."""
    rows = [row for name in ("horizon", "short") for row in read_rows(FOLDER.parent / f"{name}.jsonl")]
    retired = ("before-usual-sgd", "search-alone", "before-deep-falls", "before-plateaus")  # the oldest last
    rows += [row for name in retired for row in read_rows(RETIRED / f"horizon-{name}.jsonl")]
    found = {(row["task"], row["seed"]): row for row in rows if row["method"] == "horizon"}
    return [found[row["task"], row["seed"]] for row in SHARPER]


def test_on_the_benchmark_it_widened_the_spread():
    page = runpy.run_path(str(FOLDER.parents[2] / "tools" / "benchmarks_page.py"))
    rivals = [
        row
        for path in sorted(FOLDER.parent.glob("*.jsonl"))
        for row in read_rows(path)
        if row["task"] in page["HEADLINE_TASKS"] and row["method"] in TUNED_SCHEDULES
        if row["task"] not in SLOW or row["phase"] != "report" or row["seed"] < 10  # more were run later
    ]
    ours = [[row for row in rows if row["task"] in page["HEADLINE_TASKS"]] for rows in (SHARPER, by_default())]
    found = [summary(score([*rivals, *rows]))["horizon"] for rows in ours]
    assert [one.spread for one in found] == pytest.approx([1.22, 1.08], abs=0.006)
    assert [one.ratio for one in found] == pytest.approx([0.9795, 0.981], abs=0.001)
    assert [one.worst for one in found] == pytest.approx([1.027, 1.031], abs=0.001)


def test_what_sgd_does_on_a_plateau_moved_ten_peaks_of_461():
    """Beside what the slow ramp moved later."""
    rows = read_rows(RETIRED / "horizon-before-slow-ramp.jsonl")
    later = {(row["task"], row["seed"]): row for row in rows if row["method"] == "horizon"}
    stood = [later.get((row["task"], row["seed"]), row) for row in by_default()]
    pairs = zip(SHARPER, stood, strict=True)
    moved = Counter(now["task"] for now, before in pairs if abs(now["peak"] / before["peak"] - 1) > 1e-4)
    others = {"vgg16-cifar100": 1, "fashion-vit": 1, "short-formula-adam": 1}
    assert len(SHARPER) == 461 and moved == {"resnet50-imagenet": 7, **others}


def test_in_longer_runs_the_peak_is_right_but_for_the_mlp_which_overfits():
    lost = defaultdict(list)
    for row in read("long"):
        ends = dict(row["runs"])
        lost[row["task"].split(":")[0]].append(100 * (ends[0] / min(ends.values()) - 1))
        assert 6000 <= row["total_steps"] <= 16_000
    assert min(lost.pop("fashion-mlp")) > 5
    assert {task: max(all_) for task, all_ in lost.items()} == pytest.approx(
        {"fashion-cnn": 1.0, "bible-transformer": 0.7, "fashion-autoencoder": 1.0, "bible-lstm": 0.0}, abs=0.06
    )


@pytest.mark.parametrize(
    ("task", "low", "high"),
    [
        ("cifar-plain-sgd", 0.02, 0.04),
        ("cifar-mlp-sgd", 0.02, 0.04),
        ("cifar-batchnorm-sgd", 0.04, 0.16),
        ("cifar-residual-sgd", 0.04, 0.32),
        ("cifar-groupnorm-sgd", 0.02, 0.04),
        ("cifar-batchnorm-adamw", 0.005, 0.04),
    ],
)
def test_on_ordinary_jobs_the_best_peaks_are_what_the_log_says(task, low, high):
    ends = {row["peak"]: row["test"] for row in read("ordinary") if (row["task"], row["seed"]) == (task, 300)}
    best = min(ends.values())
    near = [peak for peak, loss in ends.items() if loss < 1.02 * best]
    assert low / 2 < min(near) <= low * 1.01 and high * 0.99 <= max(near)
