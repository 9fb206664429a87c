"""What docs/research-log.md says under "The slow ramp", from the committed rows."""

from __future__ import annotations

import math
import runpy
from collections import defaultdict
from pathlib import Path
from statistics import mean

import numpy as np
import pytest

PEAKS = runpy.run_path(str(Path(__file__).parents[2] / "tools" / "peaks.py"))
RESULTS = PEAKS["RESULTS"]
RAMPS, RUNS, BESIDE = (PEAKS["read"](RESULTS / f"slow-{name}.jsonl") for name in ("ramps", "runs", "beside"))
LOST = PEAKS["lost_at"](RUNS)


def lost(peak_of) -> float:
    """The log of the loss over that at the best peak, in the mean over tasks, of a peak for each search."""
    by_task = defaultdict(list)
    for row in RAMPS:
        by_task[row["task"]].append(float(np.interp(math.log2(peak_of(row)), *LOST[row["task"]])))
    return mean(map(mean, by_task.values()))


def test_eighteen_tasks_six_searches_each():
    assert len({row["task"] for row in RAMPS}) == 18 == len(LOST) and len(RAMPS) == 108


def test_the_best_peak_lies_one_or_two_octaves_below_where_whole_runs_have_four_times_the_loss():
    below = []
    for octaves, above in LOST.values():
        failed = [octave for octave, loss in zip(octaves, above, strict=True) if loss > math.log(4)]
        higher = [octave for octave in failed if octave > octaves[np.argmin(above)]]
        if higher:
            below.append(min(higher) - octaves[np.argmin(above)])
    assert sorted(below) == pytest.approx([1] * 7 + [2] * 8 + [4])


def test_what_peaks_lose_by_the_first_ramp_by_miniature_runs_and_by_the_slow_ramp():
    slowed = PEAKS["slowed"](RAMPS, RUNS)
    ways = {
        length: {below: mean(tasks.values()) for below, tasks in belows.items()} for length, belows in slowed.items()
    }
    assert lost(lambda row: row["peak"]) == pytest.approx(0.40, abs=0.01)
    edges = [lost(lambda row, below=below: min(row["edge"] or 10.0, 10.0) * 2.0**-below) for below in (3.5, 4.0, 4.5)]
    assert edges == pytest.approx([0.45, 0.44, 0.49], abs=0.015)
    assert lost(lambda row: 0.2) == pytest.approx(0.36, abs=0.01)
    assert [ways[60, 10][below] for below in (1.5, 2.0, 2.25, 3.0)] == pytest.approx(
        [0.20, 0.15, 0.18, 0.34], abs=0.006
    )
    assert [ways[30, 6][below] for below in (1.5, 2.0, 2.25, 3.0)] == pytest.approx([0.33, 0.18, 0.18, 0.28], abs=0.006)


def test_what_a_lower_peak_costs_where_nothing_was_learned_on_the_ramp():
    def peak(row, at, unseen):
        ramp = row["ramps"][at]
        losses = [math.inf if loss is None else loss for loss in ramp["losses"]]
        return PEAKS["breaks"](ramp) * 2.0 ** -(2.25 if PEAKS["course"](losses, ramp["steps"]).learned else unseen)

    costs = [lost(lambda row: peak(row, at, 3.5)) - lost(lambda row: peak(row, at, 2.25)) for at in (0, 2, 4)]  # noqa: B023
    assert costs == pytest.approx([0.084, 0.033, 0.035], abs=0.006)


def test_a_warm_up_of_fifteen_per_cent_forgives_more_than_one_of_five():
    at = {}
    for warmup in (0.05, 0.15, 0.3):
        curves = by_peak(warmup)
        base = {task: min(losses.values()) for task, losses in by_peak(0.15).items()}
        found = defaultdict(list)
        for row in RAMPS:
            peak = PEAKS["breaks"](row["ramps"][-1]) / 4
            losses = curves[row["task"]]
            logs = [min(losses[lr] - base[row["task"]], math.log(10)) for lr in sorted(losses)]
            found[row["task"]].append(float(np.interp(math.log2(peak), np.log2(sorted(losses)), logs)))
        at[warmup] = mean(map(mean, found.values()))
    assert at == pytest.approx({0.05: 0.31, 0.15: 0.17, 0.3: 0.24}, abs=0.01)


def by_peak(warmup):
    """Task -> peak -> the mean log of the loss on the two seeds that all have; infinite where one diverged."""
    found = defaultdict(lambda: defaultdict(list))
    for row in RUNS:
        if row["warmup"] == warmup and row["seed"] < 202:
            loss = row["test"]
            found[row["task"]][row["peak"]].append(math.inf if loss is None else math.log(max(loss, 1e-12)))
    return {task: {peak: mean(losses) for peak, losses in peaks.items()} for task, peaks in found.items()}


def test_in_longer_runs_both_together_lose_less_than_miniature_runs_alone():
    by_rule = defaultdict(lambda: defaultdict(list))
    for row in BESIDE:
        by_rule[row["rule"]][row["task"]].append(row["test"])
    before = {task: mean(losses) for task, losses in by_rule["miniature runs"].items()}
    ratios = {
        rule: math.exp(mean(math.log(mean(losses) / before[task]) for task, losses in tasks.items()))
        for rule, tasks in by_rule.items()
    }
    assert ratios["slow ramp"] == pytest.approx(0.65, abs=0.01)
    assert ratios["both, drawn by half"] == pytest.approx(0.69, abs=0.01)
    assert ratios["both, drawn by 0"] == pytest.approx(0.79, abs=0.02)
