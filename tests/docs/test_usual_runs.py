"""What docs/research-log.md says in "What is usual in longer runs", from the recorded searches and whole runs."""

from __future__ import annotations

import json
import math
import runpy
from collections import defaultdict
from functools import cache
from pathlib import Path

import numpy as np
import pytest

PEAKS = runpy.run_path(str(Path(__file__).parents[2] / "tools" / "peaks.py"))
MOST = math.log(4)  # what died lost no more than that


def read(name):
    return [json.loads(line) for line in (PEAKS["RESULTS"] / f"usual-{name}.jsonl").read_text().splitlines()]


@cache
def lost_at(task, seeds_like):
    """A function: log2 of a peak -> log of the loss there over that at the best peak, in the mean over runs."""
    ends = defaultdict(list)
    for row in read("runs"):
        if row["task"] == task:
            ends[row["peak"]].append(math.inf if row["test"] is None else row["test"])
    if not ends:  # of the headline: recorded before
        held = PEAKS["warmed"](PEAKS["read"](PEAKS["WARMUPS"]))
        like = PEAKS["_after_its_warmup"](json.loads(seeds_like), held)
        return lambda octave: np.mean([min(math.log1p(PEAKS["regret"](run, 2**octave)), MOST) for run in like])
    count = max(map(len, ends.values()))
    peaks = sorted(peak for peak, losses in ends.items() if len(losses) == count and np.isfinite(losses).all())
    logs = np.log([np.mean(ends[peak]) for peak in peaks])
    return lambda octave: np.interp(octave, np.log2(peaks), np.minimum(logs - logs.min(), MOST))


def lost(rule, peak=lambda row: row["peak"]):
    """Task -> what its searches lose by their peaks, seed by seed."""
    found, first = defaultdict(list), {}
    for row in read("searches"):
        first.setdefault(row["task"], json.dumps({key: row[key] for key in ("task", "start", "minis")}))
        if row["rule"] == rule:
            found[row["task"]].append(float(lost_at(row["task"], first[row["task"]])(math.log2(peak(row)))))
    return found


def means(found):
    values = found.values()
    return np.mean([np.mean(all_) for all_ in values]), np.mean([np.std(all_, ddof=1) for all_ in values])


def test_searches_that_begin_at_the_usual_lr_lose_less_and_differ_less():
    before, now = lost("before"), lost("now")
    assert len(before) == len(now) == 22 and {len(all_) for all_ in [*before.values(), *now.values()]} == {8}
    assert means(before) == pytest.approx((0.094, 0.037), abs=0.0006)
    assert means(now) == pytest.approx((0.0468, 0.0143), abs=0.0006)
    for share, mean in ((2, 0.229), (1, 0.070), (0.5, 0.0237), (0.25, 0.090)):  # no search at all
        usual = means(lost("before", lambda row, share=share: share * row["usual"]))
        assert usual == pytest.approx((mean, 0.0), abs=0.0006)


def test_how_far_from_the_usual_lr_the_best_peaks_lie():
    near = []
    for task in dict.fromkeys(row["task"] for row in read("searches")):
        first = next(row for row in read("searches") if row["task"] == task)
        octaves = np.linspace(-4, 3, 141)
        like = json.dumps({key: first[key] for key in ("task", "start", "minis")})
        losses = np.array([lost_at(task, like)(math.log2(first["usual"]) + octave) for octave in octaves])
        well = octaves[losses < losses.min() + 0.02]
        near.append((well.min(), well.max()))
        if task.startswith("wide-"):  # widths of 256 and 512, and a wider convolution net
            assert well.min() < -0.65 and well.max() > 0.25
    assert sum(low <= 0.05 and high >= -1.05 for low, high in near) == 18  # from half of it to all of it


def test_searches_that_failed_before_do_not_now():
    peaks = defaultdict(list)
    for row in read("searches"):
        peaks[row["rule"], row["task"]].append(row["peak"] / row["usual"])
    for task, far in (("cifar-groupnorm-sgd:adamw", 25), ("short-vit-adamw:t2.5", 1 / 200)):
        assert max(peaks["before", task]) > far if far > 1 else min(peaks["before", task]) < far
        assert min(peaks["now", task]) > 0.1 and max(peaks["now", task]) < 1
    assert all(row["answered"] for row in read("searches") if row["rule"] == "now")


def products():
    ends = defaultdict(dict)
    for row in read("products"):
        ends[row["task"]][row["rule"], row["seed"]] = row
    return ends


def ratio(runs):
    pairs = [(runs["now", seed]["test"], one["test"]) for (rule, seed), one in runs.items() if rule == "before"]
    assert min(min(pair) for pair in pairs) > 0
    return float(np.exp(np.mean([math.log(now / before) for now, before in pairs])))


def test_whole_runs_on_other_seeds_end_lower():
    ends = products()
    long = {task: ratio(runs) for task, runs in ends.items() if len(runs) == 6}
    short = {task: ratio(runs) for task, runs in ends.items() if len(runs) == 16}
    assert (len(long), len(short)) == (22, 9)
    assert np.exp(np.mean(np.log([*long.values()]))) == pytest.approx(0.907, abs=0.002)
    assert np.exp(np.mean(np.log([*short.values()]))) == pytest.approx(0.955, abs=0.002)
    assert max(row["cost"] for runs in ends.values() for (rule, _), row in runs.items() if rule == "now") < 1.15
