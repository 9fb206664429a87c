"""The constants of the horizon rule against the whole runs that they were chosen on (tools/peaks.py)."""

from __future__ import annotations

import math
import runpy
from pathlib import Path

import numpy as np
import pytest
from pytest import approx

from autolrs.core import engine
from autolrs.core.settings import Settings
from autolrs.core.strategies import horizon_minis, horizon_peak, horizon_rules
from autolrs.core.strategies.horizon import Horizon
from autolrs.core.strategies.horizon_ramp import edge
from autolrs.core.types import Asked, Forecast, Probed

PEAKS = runpy.run_path(str(Path(__file__).parents[2] / "tools" / "peaks.py"))


@pytest.mark.parametrize(
    ("kind", "mean"), [("averaged", 0.021), ("plain", 0.005), ("short averaged", 0.045), ("short plain", 0.04)]
)
def test_the_rule_loses_as_little_as_the_research_log_says(kind, mean, monkeypatch):
    def lost(but=()):
        found = PEAKS["score"](PEAKS["read"](PEAKS["ROWS"]))[kind]
        return np.mean([loss for task, loss in found.items() if task not in but])

    assert lost(but={"digits-mlp:adam"}) < mean  # which takes what is usual since deep falls have a rule
    monkeypatch.setattr(horizon_peak, "DEEP", math.inf)
    assert lost() < mean


def test_what_is_usual_costs_digits_with_adam_so_much():
    found = {
        kind: PEAKS["score"](PEAKS["read"](PEAKS["ROWS"]))[kind]["digits-mlp:adam"] for kind in ("averaged", "plain")
    }
    assert found == approx({"averaged": 0.065, "plain": 0.067}, abs=0.001)


def test_on_the_development_tasks_it_loses_up_to_two_per_cent_and_three_on_digits():
    found = PEAKS["score"](PEAKS["read"](PEAKS["ROWS"]))["averaged"]
    own = {task: loss for task, loss in found.items() if ":" not in task}
    assert len(own) == 8 and own.pop("digits-mlp") < 0.03 and max(own.values()) < 0.022


def test_what_miniature_runs_tell_of_the_task_is_worth_a_third_of_what_is_lost_without(monkeypatch):
    rows = PEAKS["read"](PEAKS["ROWS"])
    own = [row for row in rows if row["kind"] == "averaged" and ":" not in row["task"]]
    found = [np.mean(list(PEAKS["score"](own)["averaged"].values()))]
    monkeypatch.setattr(horizon_peak, "SHIFT_PER_DESCENT", 0.0)
    found.append(np.mean(list(PEAKS["score"](own)["averaged"].values())))
    assert found[0] < 0.67 * found[1]


@pytest.mark.parametrize(("name", "searches"), [("searches.jsonl", 104), ("searches-short.jsonl", 176)])
def test_no_search_of_a_development_task_has_two_bottoms(name, searches, monkeypatch):
    rows = PEAKS["read"](PEAKS["RESULTS"] / name)
    assert len(rows) == searches

    def ridges():
        return sum(math.isfinite(horizon_minis.ridge(ended(row), row["start"])) for row in rows)

    def ended(row):
        return {lr: math.inf if loss is None else loss for lr, loss in row["minis"]}

    monkeypatch.setattr(horizon_minis, "RIDGE", 0.034)  # what the research log says is the most
    assert ridges() == 0
    monkeypatch.setattr(horizon_minis, "RIDGE", 0.01)
    assert ridges() > 0  # there are lower ones, by chance


@pytest.mark.timeout(120)
def test_a_row_can_be_recorded(tmp_path, capsys):
    pytest.importorskip("sklearn")
    PEAKS["main"](["record", str(tmp_path / "rows.jsonl"), "digits-mlp:adam:t0.25:plain", "3"])
    (row,) = PEAKS["read"](tmp_path / "rows.jsonl")
    assert (row["kind"], row["task"], row["seed"]) == ("short plain", "digits-mlp:adam:t0.25", 3)
    assert len(row["minis"]) >= 2 and len(row["runs"]) == 5
    peak = row["runs"][2][0]  # the one in the middle is what the strategy took
    assert PEAKS["rule"](row) == pytest.approx(peak, rel=1e-6)
    assert "digits-mlp:adam:t0.25 seed 3: the rule loses" in capsys.readouterr().out


def test_the_regret_of_the_best_peak_is_nothing_and_of_others_what_the_runs_say():
    row = {"runs": [[1.0, 0, 2.0], [2.0, 0, 1.0], [4.0, 0, 3.0], [8.0, None, None]]}
    assert PEAKS["regret"](row, 2.0) == pytest.approx(0.0, abs=1e-9)
    assert PEAKS["regret"](row, 1.0) == pytest.approx(1.0)
    assert PEAKS["regret"](row, 64.0) == pytest.approx(2.0)  # no further than what was run


def test_over_eight_seeds_no_development_task_is_left_to_chance():
    lost = PEAKS["searched"](PEAKS["read"](PEAKS["SEARCHES"]), PEAKS["read"](PEAKS["ROWS"]))
    assert all(len(all_) == 8 for all_ in lost.values()) and len(lost) == 13
    assert np.mean([np.mean(all_) for all_ in lost.values()]) < 0.02
    assert max(lost["transformer-wmt14"]) < 0.03  # where all LRs do alike in miniature runs
    before = PEAKS["read"](PEAKS["SEARCHES"].with_stem("searches-better-edge-first"))
    assert max(PEAKS["searched"](before, PEAKS["read"](PEAKS["ROWS"]))["transformer-wmt14"]) > 1.0


def test_in_short_runs_searches_lose_what_the_research_log_says_and_less_than_they_did(capsys):
    folder = PEAKS["RESULTS"]
    PEAKS["main"](["searched", *(str(folder / name) for name in ("searches-short.jsonl", "runs-short.jsonl"))])
    assert capsys.readouterr().out.startswith("3.6")
    runs = PEAKS["read"](folder / "runs-short.jsonl")
    now, before = (
        PEAKS["searched"](PEAKS["read"](folder / f"searches-short{which}.jsonl"), runs) for which in ("", "-nearest-lr")
    )
    assert all(len(all_) == 16 for all_ in now.values()) and len(now) == 11
    assert np.mean(list(now.values())) < 0.92 * np.mean(list(before.values()))


@pytest.mark.timeout(120)
def test_a_search_can_be_recorded(tmp_path, capsys):
    pytest.importorskip("sklearn")
    PEAKS["main"](["search", str(tmp_path / "searches.jsonl"), "digits-mlp", "3"])
    (row,) = PEAKS["read"](tmp_path / "searches.jsonl")
    assert (row["kind"], row["task"], row["seed"]) == ("averaged", "digits-mlp", 3) and "runs" not in row
    PEAKS["main"](["searched", str(tmp_path / "searches.jsonl")])
    assert "digits-mlp" in capsys.readouterr().out


def test_holding_the_peak_is_worth_what_the_research_log_says():
    found = PEAKS["held"](PEAKS["read"](PEAKS["HELD"]))
    mean = {
        (kind, shape): np.exp(np.mean(np.log(list(ratios.values()))))
        for kind, shapes in found.items()
        for shape, ratios in shapes.items()
    }
    assert mean["averaged", "0.5"] < 0.992 and mean["short averaged", "0.5"] < 0.987
    assert 0.995 < mean["plain", "0.5"] < 1.01  # which is why plain runs do not hold
    assert mean["averaged", "0.5"] < mean["averaged", "0.5x0.71"]


def test_a_held_run_can_be_recorded(tmp_path):
    pytest.importorskip("sklearn")
    for shape in ("0", "0.5x2"):
        PEAKS["main"](["hold", str(tmp_path / "held.jsonl"), shape, "digits-mlp:t.3:plain"])
    rows = PEAKS["read"](tmp_path / "held.jsonl")
    assert {(row["hold"], row["factor"]) for row in rows} == {(0.0, 1.0), (0.5, 2.0)}
    found = PEAKS["held"](rows)
    assert set(found) == {"short plain"} and set(found["short plain"]) == {"0.5x2"}
    with pytest.raises(SystemExit, match="record it first"):
        PEAKS["main"](["hold", str(tmp_path / "held.jsonl"), "0.5", "digits-mlp:b9"])


@pytest.mark.parametrize(
    "arguments", [[], ["record", "rows.jsonl"], ["hold", "rows.jsonl"], ["search", "rows.jsonl", "x"], ["nonsense"]]
)
def test_it_says_how_it_is_used(arguments):
    with pytest.raises(SystemExit, match=r"tools/peaks\.py record"):
        PEAKS["main"](arguments)


def test_a_longer_warm_up_forgives_a_peak_twice_too_high_where_miniature_runs_learn_little():
    found = PEAKS["warmed"](PEAKS["read"](PEAKS["WARMUPS"]))

    def rise(task, share):
        """How much higher a run at twice the rule's peak ends, in the mean over seeds."""
        ends = [[*found[task, seed][share].items()] for seed in (101, 102)]
        pairs = [(low, high) for runs in ends for p, low in runs for q, high in runs if math.isclose(q, 2 * p)]
        return np.exp(np.mean([math.log(high / low) for low, high in pairs]))

    assert rise("transformer-wmt14", 0.05) > 1.2 and rise("transformer-wmt14", 0.15) < 1.06
    assert rise("bert-pretraining", 0.05) > 1.14 and rise("bert-pretraining", 0.15) < 1.05


def test_after_the_longest_warm_up_the_peak_may_lie_closer_to_the_edge():
    rows = [row for row in PEAKS["read"](PEAKS["WARMUPS"]) if "below_edge" in row]
    tasks = sorted({row["task"] for row in rows})

    def lost(share, below):
        best = {task: min(row["test"] for row in rows if row["task"] == task) for task in tasks}
        chosen = [row for row in rows if row["warmup"] == share and row["below_edge"] == below]
        return np.mean([math.log(row["test"] / best[row["task"]]) for row in chosen])

    assert len(tasks) == 9
    assert lost(0.05, 4) == min(lost(0.05, below) for below in (2, 3, 4, 5, 6))
    assert lost(0.3, 3) < lost(0.3, 4) < lost(0.05, 4) + 0.005 and lost(0.3, 2) > 2 * lost(0.3, 3)


def test_by_three_ramps_the_edge_differs_less_between_seeds_than_by_one():
    edges = {}
    for row in PEAKS["read"](PEAKS["RESULTS"] / "ramps.jsonl"):
        assert row["begins"] == [None, 4, 8, 12, 20]  # of the ramp's LRs below the first one's edge
        edges.setdefault(row["task"], []).append(row["edges"])
    one = {task: np.std([found[0] for found in all_], ddof=1) for task, all_ in edges.items()}
    used = {task: [(found[0], found[2], found[3]) for found in all_] for task, all_ in edges.items()}
    three = {task: np.std(np.mean(all_, axis=1), ddof=1) for task, all_ in used.items()}
    shorter = [task for task in edges if ":t" in task]
    assert len(shorter) == 9 and all(len(all_) == 8 for all_ in edges.values())
    assert (min(three[task] for task in shorter), max(three[task] for task in shorter)) == approx(
        (0.14, 0.29), abs=0.01
    )
    assert (min(one[task] for task in shorter), max(one[task] for task in shorter)) == approx((0.17, 0.48), abs=0.01)
    assert (one["resnet50-cifar10"], three["resnet50-cifar10"]) == approx((0.50, 0.31), abs=0.01)
    assert (one["vgg16-cifar10"], three["vgg16-cifar10"]) == approx((0.95, 0.58), abs=0.01)
    apart = [abs(np.mean([found[i] - found[0] for found in edges[task]])) for task in shorter for i in (2, 3)]
    assert max(apart) < 0.6 and np.mean(apart) == approx(0.3, abs=0.05)


def lost(first, temperature, off, deep, monkeypatch):
    """Per cent lost by the thirteen tasks' searches, in the mean and from search to search."""
    monkeypatch.setattr(horizon_peak, "DEEP", math.inf)  # as it was then
    monkeypatch.setattr(horizon_peak, "TEMPERATURE", temperature)
    monkeypatch.setattr(horizon_rules, "LONG_SGD", horizon_rules.LONG_SGD._replace(off=off, deep=deep))
    searches = PEAKS["read"](PEAKS["RESULTS"] / f"searches-{first}-first.jsonl")
    found = PEAKS["searched"](searches, PEAKS["read"](PEAKS["WARMUPS"]))
    assert len(found) == 13 and all(len(all_) == 8 for all_ in found.values())
    means, spreads = zip(*((np.mean(all_), np.std(all_)) for all_ in found.values()), strict=True)
    return 100 * np.mean(means), 100 * np.mean(spreads)


@pytest.mark.parametrize(
    ("first", "temperature", "off", "deep", "mean", "spread"),
    [
        ("three", 0.015, 0.0, 0.0, 1.59, 0.75),
        ("two", 0.015, 0.0, 0.0, 1.47, 0.64),
        ("two", 0.025, 0.0, 0.0, 1.49, 0.46),
        ("two", 0.04, 0.0, 0.0, 1.60, 0.40),
        ("two", 0.025, -0.3, 0.0, 1.27, 0.51),
        ("two", 0.025, -0.3, 0.6, 0.96, 0.54),
    ],
)
def test_what_the_last_changes_of_the_search_are_worth(first, temperature, off, deep, mean, spread, monkeypatch):
    assert lost(first, temperature, off, deep, monkeypatch) == approx((mean, spread), abs=0.006)


def test_the_rule_is_the_one_of_these():
    sgd = horizon_rules.LONG_SGD
    assert (horizon_peak.TEMPERATURE, sgd.off, sgd.deep, len(sgd.first)) == (0.025, -0.3, 0.6, 2)


@pytest.mark.parametrize("kind", ["averaged", "plain"])
def test_sgd_wants_a_higher_peak_than_others_in_all_that_was_recorded(kind, monkeypatch):
    rows = [row for row in PEAKS["read"](PEAKS["ROWS"]) if row["kind"] == kind]
    monkeypatch.setattr(horizon_peak, "DEEP", math.inf)  # as it was then

    def lost(name, sgd, **changes):
        with monkeypatch.context() as patch:
            patch.setattr(horizon_rules, name, getattr(horizon_rules, name)._replace(**changes))
            own = [row for row in rows if PEAKS["is_sgd"](row["task"]) == sgd]
            return np.mean([PEAKS["regret"](row, PEAKS["unheld"](row)) for row in own])

    as_others = lost("LONG_SGD", True, off=0.0, deep=0.0)
    assert lost("LONG_SGD", True) < lost("LONG_SGD", True, deep=0.0) < as_others
    assert lost("LONG", False, off=-0.3) > lost("LONG", False)
    assert lost("LONG", False, deep=0.6) > lost("LONG", False)


LARGE = {"resnet50-cifar10", "transformer-wmt14", "bert-pretraining", "vgg16-cifar100", "vgg16-cifar10"}


def averages():
    """Task -> [validation loss, test loss] of averaged weights and of the others, for each run."""
    runs = {}
    for row in PEAKS["read"](PEAKS["RESULTS"] / "averages.jsonl"):
        runs.setdefault(row["task"], []).append((row["av"], row["raw"]))
    return runs


def test_averaged_weights_of_small_tasks_lose_by_chance_and_those_of_large_ones_do_not():
    runs = averages()
    small = [run for task, all_ in runs.items() for run in all_ if task not in LARGE]
    large = [run for task in LARGE for run in runs[task]]
    assert (len(runs), len(small), len(large)) == (15, 120, 14)
    lost = [(raw[0] / av[0], raw[1] / av[1]) for av, raw in small if raw[0] < av[0]]
    assert len(lost) == 22 and min(lost)[0] > 0.98 and sum(test > 1 for _, test in lost) == 19
    clearly = [(raw[0] / av[0], raw[1] / av[1]) for av, raw in large if raw[0] < 0.995 * av[0]]
    assert len(clearly) == 6 and all(0.98 < test < 0.997 for _, test in clearly)


def test_half_a_per_cent_is_the_best_of_the_margins_and_worth_little():
    pytest.importorskip("torch")
    from autolrs.core.averaging import BY_CHANCE

    means, spreads = {}, {}
    for margin in (0.0, 0.0025, BY_CHANCE, 0.0075, 0.01, 0.02, math.inf):
        ended = [
            [raw[1] if raw[0] < av[0] * (1 - margin) else av[1] for av, raw in all_] for all_ in averages().values()
        ]
        means[margin] = np.mean([math.log(np.mean(tests)) for tests in ended])
        spreads[margin] = np.mean([math.log(np.std(tests)) for tests in ended])
    gains = [100 * (mean - means[0.0]) for mean in means.values()]
    assert gains == approx([0, -0.01, -0.02, -0.01, 0.01, 0.12, 0.12], abs=0.01) and min(gains) == gains[2]
    assert math.exp(spreads[BY_CHANCE] - spreads[0.0]) == approx(0.97, abs=0.006)


def edge_of(losses):
    """The edge of divergence in a ramp of 20 steps, in octaves; nan where it never broke."""
    state = engine.evolve(None, engine.start(Settings.make(total_steps=1200, strategy="horizon")))
    state = engine.evolve(state, Asked(Horizon().decide(state)))
    seen = tuple(math.inf if loss is None else loss for loss in losses)
    found = edge(engine.evolve(state, Probed(0, 0, 10.0, len(seen), seen, Forecast(0, 0, 0, 0, "ok"), sweep=True)))
    return math.log2(found) if math.isfinite(found) else math.nan


@pytest.mark.parametrize(
    ("task", "one", "four"),
    [
        ("digits-mlp:t.3", 0.42, 0.10),
        ("fashion-mlp:sgd:t.15", 0.26, 0.19),
        ("fashion-cnn:t.2", 0.41, 0.26),
        ("fashion-autoencoder:sgd:t.2", 0.20, 0.28),
        ("vgg16-cifar100", 0.85, 0.36),
        ("resnet50-cifar10", 0.50, 0.20),
    ],
)
def test_single_batches_move_the_edge(task, one, four):
    rows = [row for row in PEAKS["read"](PEAKS["RESULTS"] / "ramps-four-batches.jsonl") if row["task"] == task]
    edges = np.array([[edge_of(losses) for losses in row["losses"]] for row in rows])
    assert edges.shape == (8, 4)
    spreads = np.nanstd(edges[:, 0], ddof=1), np.std(np.nanmean(edges, axis=1), ddof=1)
    assert spreads == approx((one, four), abs=0.006)


def compared(pairs):
    """The mean of log ratios in per cent, and its standard error."""
    logs = [100 * math.log(now / before) for now, before in pairs]
    return np.mean(logs), np.std(logs, ddof=1) / len(logs) ** 0.5


def test_on_the_demo_a_longer_warm_up_costs_less_than_chance():
    losses = {}
    for row in PEAKS["read"](PEAKS["RESULTS"] / "demo-warmups.jsonl"):
        losses.setdefault(row["warmup"], {})[row["seed"]] = row["test"]
    assert {share: len(all_) for share, all_ in losses.items()} == {"auto": 40, 0.05: 40, 0.1: 40}
    means = [np.mean([*losses[share].values()]) for share in ("auto", 0.05, 0.1)]
    assert means == approx([0.134, 0.128, 0.128], abs=0.0006)
    pairs = [(losses["auto"][seed], losses[0.05][seed]) for seed in range(40)]
    assert compared(pairs) == approx((4.4, 3.6), abs=0.1) and compared(pairs[8:]) == approx((2.6, 4.2), abs=0.1)


def test_on_digits_cnn_a_shorter_warm_up_ends_at_the_same_loss():
    before = PEAKS["read"](PEAKS["HEADLINE"].parent / "retired" / "horizon-lower-loss.jsonl")  # the rule of the others
    usual = {row["seed"]: row["test"] for row in before if row["task"] == "digits-cnn"}
    rows = [row for row in PEAKS["read"](PEAKS["RESULTS"] / "digits-cnn-warmups.jsonl") if row["warmup"] == 0.05]
    assert len(rows) == 80 and compared([(row["test"], usual[row["seed"]]) for row in rows]) == approx(
        (-0.1, 2.1), abs=0.06
    )


def test_on_twenty_splits_of_the_images_digits_cnn_is_as_good_as_the_tuned_cosine():
    losses = {}
    for row in PEAKS["read"](PEAKS["RESULTS"] / "digits-cnn-splits.jsonl"):
        losses.setdefault((row["split"], row["method"]), []).append((row["test"], row["validation"]))
    assert len(losses) == 40 and all(len(all_) == 8 for all_ in losses.values())
    for part, (mean, error) in enumerate([(1.019, 0.014), (0.993, 0.023)]):
        means = {key: np.mean(all_, axis=0)[part] for key, all_ in losses.items()}
        logs = [math.log(means[split, "horizon"] / means[split, "cosine"]) for split in range(1, 21)]
        assert math.exp(np.mean(logs)) == approx(mean, abs=0.001)
        assert np.std(logs, ddof=1) / 20**0.5 == approx(error, abs=0.001)


def test_the_command_for_other_splits_adds_rows_like_these(tmp_path, monkeypatch):
    pytest.importorskip("sklearn")
    monkeypatch.syspath_prepend(PEAKS["RESULTS"].parents[2] / "tools")
    import splits

    monkeypatch.setattr(splits, "SEEDS", [200])
    splits.main(str(tmp_path / "rows.jsonl"), "3", "4")
    *found, horizon, cosine = PEAKS["read"](tmp_path / "rows.jsonl")
    assert (horizon["split"], cosine["split"]) == (4, 4)
    assert horizon["test"] != found[0]["test"] and cosine["test"] != found[1]["test"]  # other images
    rows = PEAKS["read"](PEAKS["RESULTS"] / "digits-cnn-splits.jsonl")
    like = sorted((row for row in rows if (row["split"], row["seed"]) == (3, 200)), key=lambda row: -len(row["method"]))
    assert [row.keys() for row in found] == [row.keys() for row in like]
    assert [row["test"] for row in found] == approx([row["test"] for row in like], rel=0.5)  # machines round otherwise


@pytest.mark.parametrize(
    ("task", "peak", "hold", "mean", "spread"),
    [
        ("fashion-mlp", 0.0062, 0.5, 0.3460, 0.0027),
        ("fashion-mlp", 0.0044, 0.5, 0.3430, 0.0023),
        ("fashion-mlp", 0.0062, 0.3, 0.3438, 0.0026),
        ("digits-mlp", 0.4, 0.5, 0.0904, 0.0009),
        ("digits-mlp", 0.513, 0.5, 0.0888, 0.0010),
        ("fashion-autoencoder:sgd", 0.8, 0.5, 0.0672, 0.0003),
        ("fashion-autoencoder:sgd", 1.027, 0.5, 0.0656, 0.0003),
    ],
)
def test_averaged_runs_at_one_peak(task, peak, hold, mean, spread):
    rows = PEAKS["read"](PEAKS["RESULTS"] / "averages-by-peak.jsonl")
    found = [row["av"][1] for row in rows if (row["task"], row["peak"], row["hold"]) == (task, peak, hold)]
    assert len(found) == (6 if task.endswith("sgd") else 24)
    assert (np.mean(found), np.std(found, ddof=1)) == approx((mean, spread), abs=0.00006)


def test_seven_further_ramps_know_little_more_than_two():
    spreads = {}
    for row in PEAKS["read"](PEAKS["RESULTS"] / "ramps-seven-further.jsonl"):
        assert row["begins"] == [None, 6, 7, 8, 9, 10, 11, 12]
        spreads.setdefault(row["task"], []).append(
            (np.mean([row["edges"][i] for i in (0, 3, 7)]), np.mean(row["edges"]))
        )
    found = {task: np.std(all_, axis=0, ddof=1) for task, all_ in spreads.items()}
    shorter = [values for task, values in found.items() if ":t" in task]
    assert len(shorter) == 4
    assert (*np.min(shorter, axis=0), *np.max(shorter, axis=0)) == approx((0.17, 0.11, 0.27, 0.19), abs=0.006)
    assert (*found["vgg16-cifar10"], *found["resnet50-cifar10"]) == approx((0.58, 0.58, 0.31, 0.27), abs=0.006)


def test_a_warm_up_by_what_was_learned_pays_in_plain_runs_too():
    losses, ratios = {}, {}
    for row in PEAKS["read"](PEAKS["RESULTS"] / "plain-warmups.jsonl"):
        losses.setdefault((row["task"], row["seed"]), {})[row["warmup"] == 0.05] = row["test"]
    for (task, seed), pair in losses.items():
        ratios.setdefault((task, seed < 100), []).append(100 * math.log(pair[False] / pair[True]))
    found = {key: np.mean(all_) for key, all_ in ratios.items()}
    chosen, held_out = (
        [m for (t, own), m in found.items() if t.startswith("short") and own == o] for o in (False, True)
    )
    assert (len(chosen), np.mean(chosen), sum(mean < -8 for mean in chosen)) == approx((6, -16, 5), abs=0.5)
    assert (len(held_out), np.mean(held_out)) == approx((6, -4), abs=0.5)
    longer = {"bible-lstm": -1.0, "bible-lstm:adam": -0.3, "bible-transformer": 0.2, "bert-pretraining": 1.3}
    longer |= {"transformer-wmt14": -1.6, "resnet50-cifar10": -3.9, "vgg16-cifar10": -0.2}
    assert {task: found[task, False] for task in longer} == approx(longer, abs=0.06)
    assert (found["shakespeare-gru", True], found["digits-cnn", True]) == approx((-0.8, -7.5), abs=0.1)
