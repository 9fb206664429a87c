"""What docs/research-log.md says under "Deep falls", from the committed searches and whole runs."""

from __future__ import annotations

import math
import runpy
from collections import defaultdict
from pathlib import Path
from statistics import mean

import numpy as np
import pytest

from autolrs.core.settings import Settings
from autolrs.core.strategies.horizon_peak import WELL, centre, correction, fell_deep, shortfalls

PEAKS = runpy.run_path(str(Path(__file__).parents[2] / "tools" / "peaks.py"))
SEARCHES, RUNS = (PEAKS["read"](PEAKS["RESULTS"] / f"deep-{name}.jsonl") for name in ("searches", "runs"))
LOST = PEAKS["lost_at"](RUNS, 0.05)
WAYS, SHORT = (0.37, 0.27, 0.24, 0.21), (0.52, 0.42)
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


def towards_usual(row, share):
    """The peak that goes so far from the centre to the usual LR, if that did well; the rule's, if nothing fell deep."""
    losses = {round(math.log2(lr / row["landmark"])): math.inf if loss is None else loss for lr, loss in row["minis"]}
    best, short = min(losses.values()), shortfalls(losses, row["start"])
    if not fell_deep(row["start"], best):
        return row["peak"]
    config = Settings.make(strategy="horizon", total_steps=row["total_steps"], averaging=True)
    found = row["landmark"] * 2.0 ** (centre(short) - correction(config, row["start"], best))
    well = short.get(round(math.log2(row["usual"] / row["landmark"])), math.inf) < WELL
    return found * (row["usual"] / found) ** share if well else found


def test_all_of_the_way_to_what_is_usual_loses_less_than_any_part_of_it():
    rows = [row for row in SEARCHES if row["search"] == "usual tried"]
    assert len({row["task"] for row in rows}) == 20 and len(rows) == 100

    def lost_by(share):
        by_task = defaultdict(list)
        for row in rows:
            at = math.log2(towards_usual(row, share))
            by_task[row["task"]].append(float(np.interp(at, *LOST[row["task"]])))
        return mean(map(mean, by_task.values()))

    assert [lost_by(share) for share in (0.0, 0.5, 2 / 3, 1.0)] == pytest.approx(WAYS, abs=0.006)


def test_at_six_hundred_steps_it_helps_little():
    runs = PEAKS["lost_at"](RUNS, 0.15)
    found = {}
    for which in ("before", "after"):
        rows = [row for row in SEARCHES if row["search"] == which and row["task"].endswith(":t0.4")]
        assert len(rows) == 24
        found[which] = mean(float(np.interp(math.log2(row["peak"]), *runs[row["task"]])) for row in rows)
    assert (found["before"], found["after"]) == pytest.approx(SHORT, abs=0.006)


def test_the_deeper_miniature_runs_of_sgd_fell_the_further_they_are_drawn_and_two_of_seven_gain():
    ends = defaultdict(lambda: defaultdict(list))
    for row in PEAKS["read"](PEAKS["RESULTS"] / "deep-sgd.jsonl"):
        ends[row["task"]][row["drawn"]].append(row["test"])
    ratios = {task: mean(all_["by its fall"]) / mean(all_["a third"]) for task, all_ in ends.items()}
    moved = {task: ratio for task, ratio in ratios.items() if ratio != 1}
    assert moved == pytest.approx({"sgd-autoencoder-long": 0.74, "sgd-taught-long": 0.68}, abs=0.006)
    assert len(ratios) == 7 and all(len(all_["a third"]) == 6 for all_ in ends.values())
