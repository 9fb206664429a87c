from __future__ import annotations

import math

import pytest

pytest.importorskip("torch")

from autolrs.bench.score import EVALUATION_STEPS, Score, paired, performance_profile, score, steps_to_accuracy, summary


def row(method, test, seed=0, task="a", *, raw=100, evaluations=0, curve=(), phase="report", total=100):
    return {
        "task": task,
        "method": method,
        "phase": phase,
        "seed": seed,
        "test": test,
        "total_steps": total,
        "raw_steps": raw,
        "evaluations": evaluations,
        "curve": list(curve),
    }


def by_method(rows):
    return {one.method: one for one in score(rows)}


def test_loss_and_spread_are_over_seeds_and_tuning_runs_do_not_count():
    rows = [row("cosine", 0.2, 0), row("cosine", 0.4, 1), row("cosine", 9.0, 100, phase="tune")]
    one = by_method(rows)["cosine"]
    assert (one.seeds, one.loss) == (2, pytest.approx(0.3))
    assert one.spread == pytest.approx(math.sqrt(0.02))


def test_one_seed_has_no_spread():
    assert math.isnan(by_method([row("cosine", 0.2)])["cosine"].spread)


def test_a_diverged_run_makes_the_mean_infinite_instead_of_dropping_out():
    found = by_method([row("horizon", None, 0), row("horizon", 0.1, 1), row("cosine", 0.2)])["horizon"]
    assert (found.seeds, found.loss, found.ratio) == (2, math.inf, math.inf)
    assert math.isnan(found.spread)


def test_ratio_is_to_the_best_tuned_schedule_not_to_the_best_method():
    found = by_method([row("cosine", 0.4), row("wsd", 0.2), row("prodigy", 0.1), row("horizon", 0.3)])
    assert found["horizon"].ratio == pytest.approx(1.5)
    assert found["prodigy"].ratio == pytest.approx(0.5)
    assert found["wsd"].ratio == 1.0


@pytest.mark.parametrize("tuned", [[], [("cosine", None)]], ids=["not run", "all diverged"])
def test_without_a_tuned_schedule_there_is_nothing_to_compare_with(tuned):
    found = by_method([row("horizon", 0.3, curve=[(50, 0.2)]), *(row(*one) for one in tuned)])["horizon"]
    assert math.isnan(found.ratio) and math.isnan(found.speedup) and math.isnan(found.speedup_all)


@pytest.mark.parametrize(("loss", "ratio"), [(0.0, 1.0), (0.1, math.inf)])
def test_a_best_loss_of_zero_divides_nothing(loss, ratio):
    assert by_method([row("cosine", 0.0), row("horizon", loss)])["horizon"].ratio == ratio


def test_cost_counts_probes_and_validation_passes():
    found = by_method([row("horizon", 0.1, 0, raw=120, evaluations=3), row("horizon", 0.1, 1, raw=140, evaluations=3)])
    assert found["horizon"].cost == pytest.approx(1 + (30 + 3 * EVALUATION_STEPS) / 100)


def test_a_validation_pass_costs_all_methods_of_a_task_what_one_of_them_weighed():
    ours = {**row("horizon", 0.1, raw=110, evaluations=4), "settings": {"evaluate_cost": 5.0}}
    found = by_method([ours, row("paper", 0.2, raw=200, evaluations=2)])
    assert found["horizon"].cost == pytest.approx((110 + 4 * 5) / 100)
    assert found["paper"].cost == pytest.approx((200 + 2 * 5) / 100)


def test_a_run_that_weighed_its_validation_passes_is_counted_by_its_own_weight():
    weights = (2.0, 4.0)  # batches of different sizes
    rows = [{**row("horizon", 0.1, i, evaluations=3), "settings": {"evaluate_cost": w}} for i, w in enumerate(weights)]
    assert by_method(rows)["horizon"].cost == pytest.approx((rows[0]["raw_steps"] + 3 * 3) / 100)


def test_speedup_is_to_the_cosines_mean_loss_and_may_count_the_search():
    cosine = [row("cosine", 0.2, 0), row("cosine", 0.4, 1)]  # target 0.3
    ours = [row("horizon", 0.1, seed, raw=125, curve=[(40, 0.5), (at, 0.3)]) for seed, at in enumerate((50, 50, 80))]
    found = by_method([*cosine, *ours])["horizon"]
    assert found.speedup == pytest.approx(100 / 50)
    assert found.speedup_all == pytest.approx(100 / 75)


def test_speedup_is_zero_if_most_runs_never_get_there():
    ours = [row("horizon", 0.1, 0, curve=[(50, 0.1)]), *(row("horizon", 0.9, s, curve=[(50, None)]) for s in (1, 2))]
    found = by_method([row("cosine", 0.3), *ours])["horizon"]
    assert (found.speedup, found.speedup_all) == (0.0, 0.0)


def test_order_is_that_of_the_rows():
    rows = [row("wsd", 1.0, task="b"), row("cosine", 1.0, task="a"), row("cosine", 1.0, task="b")]
    assert [(one.task, one.method) for one in score(rows)] == [("b", "wsd"), ("a", "cosine"), ("b", "cosine")]


def test_a_run_reported_twice_is_refused():
    with pytest.raises(ValueError, match="a cosine seed 3 is reported twice"):
        score([row("cosine", 0.1, 3), row("cosine", 0.2, 3)])


def test_budgets_of_one_task_must_agree():
    with pytest.raises(ValueError, match="rows of a must have one total_steps, got 100 and 200"):
        score([row("cosine", 0.1), row("wsd", 0.1, total=200)])


def one(method, ratio, cost=1.0, task="a"):
    return Score(task, method, 1, 0.1, 0.0, ratio, cost, 1.0, 1.0)


def test_spread_is_held_against_that_of_the_best_tuned_schedule():
    losses = {"cosine": (0.4, 0.6), "wsd": (0.25, 0.35), "prodigy": (0.1, 0.1), "horizon": (0.2, 0.5)}
    found = by_method([row(name, loss, seed) for name, both in losses.items() for seed, loss in enumerate(both)])
    ratios = {name: one.spread_ratio for name, one in found.items()}
    assert ratios == pytest.approx({"cosine": 2.0, "wsd": 1.0, "prodigy": 0.0, "horizon": 3.0})
    assert math.isnan(by_method([row("cosine", 0.4), row("horizon", 0.3)])["horizon"].spread_ratio)


def test_summary_takes_the_geometric_mean_of_spreads_over_the_tasks_that_have_one():
    ratios = {"a": 0.5, "b": 8.0, "c": math.nan}
    group = [one("horizon", 1.0, task=task)._replace(spread_ratio=ratio) for task, ratio in ratios.items()]
    assert summary(group)["horizon"].spread == pytest.approx(2.0)


def test_summary_takes_geometric_mean_worst_and_mean_cost():
    found = summary([one("horizon", 0.5, 1.1), one("horizon", 2.0, 1.3, "b"), one("cosine", 1.0)])
    assert found["horizon"][:4] == pytest.approx((2, 1.0, 2.0, 1.2))
    assert found["cosine"].tasks == 1


def test_summary_leaves_tasks_out_that_have_nothing_to_compare_with():
    found = summary([one("horizon", 0.5, 1.1), one("horizon", math.nan, 3.0, "b"), one("lone", math.nan, 2.0)])
    assert found["horizon"][:4] == pytest.approx((1, 0.5, 0.5, 1.1))
    assert found["lone"].tasks == 0 and math.isnan(found["lone"].ratio) and found["lone"].cost == 2.0


@pytest.mark.parametrize(("ratios", "mean"), [((0.5, math.inf), math.inf), ((0.0, math.inf), math.inf), ((0.0, 2), 0)])
def test_summary_of_a_divergence_is_infinite_whatever_the_rest(ratios, mean):
    assert summary(one("horizon", ratio, task=str(ratio)) for ratio in ratios)["horizon"].ratio == mean


def test_tuning_is_counted_apart_in_whole_runs():
    rows = [row("cosine", 0.2), *(row("cosine", 0.3, 100, phase="tune", raw=50) for _ in range(4))]
    found = by_method(rows)["cosine"]
    assert (found.tuning, found.cost) == (pytest.approx(2.0), 1.0)


def test_accuracy_is_averaged_where_every_run_has_one():
    rows = [{**row("cosine", 0.2, s), "accuracy": a} for s, a in enumerate((0.8, 0.9))]
    assert by_method(rows)["cosine"].accuracy == pytest.approx(0.85)
    assert math.isnan(by_method([rows[0], row("cosine", 0.2, 1)])["cosine"].accuracy)


def test_profiles_of_one_task_are_scored_apart():
    rows = [row("cosine", 0.2), {**row("cosine", 0.4, total=10, raw=10), "profile": "smoke"}]
    assert [(one.task, one.loss) for one in score(rows)] == [("a", 0.2), ("a (smoke)", 0.4)]


def test_paired_differences_take_common_seeds_only_and_keep_divergence_out_of_the_mean():
    rows = [row("cosine", 0.2, 0), row("cosine", 0.4, 1), row("cosine", 0.5, 2)]
    rows += [row("wsd", 0.1, 0), row("wsd", 0.6, 1), row("wsd", None, 2), row("wsd", 0.1, 3)]
    (found,) = paired(rows)
    assert (found.method, found.seeds, found.wins) == ("wsd", 3, 1)
    assert found.difference == pytest.approx(0.0) and found.error == pytest.approx(0.5)


def test_performance_profile_is_the_share_of_tasks_within_a_factor_of_the_lowest():
    scores = [one("a", 1.0)._replace(method=m, task=t, loss=v) for m, t, v in
              (("x", "1", 1.0), ("y", "1", 1.5), ("x", "2", 3.0), ("y", "2", 1.0), ("x", "3", math.inf))]  # fmt: skip
    found = performance_profile(scores, [1.0, 2.0, 3.0])
    assert found == {"x": pytest.approx([1 / 3, 1 / 3, 2 / 3]), "y": pytest.approx([1 / 3, 2 / 3, 2 / 3])}


def test_steps_to_an_accuracy():
    values = {"accuracy_curve": [[10, 0.5], [20, None], [30, 0.9]]}
    assert steps_to_accuracy(values, 0.8) == 30.0
    assert steps_to_accuracy(values, 0.95) == steps_to_accuracy({}, 0.1) == math.inf
