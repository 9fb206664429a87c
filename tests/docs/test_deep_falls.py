"""What docs/research-log.md says under "Deep falls", from the committed searches and whole runs."""

from __future__ import annotations

import math
import runpy
from collections import defaultdict
from pathlib import Path
from statistics import mean

import numpy as np
import pytest

from autolrs.core.strategies.horizon_peak import fell_deep

PEAKS = runpy.run_path(str(Path(__file__).parents[2] / "tools" / "peaks.py"))
SEARCHES, RUNS = (PEAKS["read"](PEAKS["RESULTS"] / f"deep-{name}.jsonl") for name in ("searches", "runs"))
LOST = PEAKS["lost_at"](RUNS, 0.05)
EXPECTED = {  # of all tasks, and of regressions that are not centred
    "before": ((0.57, 22), (0.64, 12)),
    "first form": ((0.25, 22), (0.22, 12)),
    "after": ((0.20, 22), (0.19, 12)),
}


def lost(which, of=lambda task: True):
    """The log of the loss over that at the best peak, in the mean over tasks."""
    by_task = defaultdict(list)
    for row in SEARCHES:
        if row["search"] == which and of(row["task"]) and row["task"] in LOST:
            by_task[row["task"]].append(float(np.interp(math.log2(row["peak"]), *LOST[row["task"]])))
    return mean(map(mean, by_task.values())), len(by_task)


def test_what_searches_lose_by_whole_runs_and_lost_before():
    for which, expected in EXPECTED.items():
        for of, (loss, tasks) in zip((lambda task: True, is_uncentred), expected, strict=True):
            assert lost(which, of) == (pytest.approx(loss, abs=0.006), tasks)


def is_uncentred(task):
    return task.startswith("uncentred")


def test_searches_of_uncentred_regressions_fall_deep():
    rows = [row for row in SEARCHES if is_uncentred(row["task"])]
    deep = [fell_deep(row["start"], min(loss for _, loss in row["minis"] if loss is not None)) for row in rows]
    assert np.mean(deep) > 0.95


@pytest.mark.parametrize("task", ["uncentred-waves", "uncentred-taught", "kind-sums"])
def test_all_lrs_that_learn_the_mean_do_alike_though_a_whole_run_wants_a_high_one(task):
    octaves, above = LOST[task]
    assert above[octaves <= math.log2(0.0045)].min() > 0.5 and octaves[np.argmin(above)] >= math.log2(0.016)
    for row in SEARCHES:
        if row["task"] == task and row["search"] == "before":
            ended = [loss for _, loss in row["minis"] if loss is not None]
            assert sorted(ended)[1] < 1.25 * min(ended)
