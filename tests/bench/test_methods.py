"""One suite for every method, on a task of a few dozen steps."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("schedulefree")
pytest.importorskip("prodigyopt")
pytest.importorskip("dadaptation")

import tiny_task  # noqa: E402 - torch may be missing
from autolrs.bench.curve import Curve  # noqa: E402
from autolrs.bench.methods import METHODS as ALL_METHODS  # noqa: E402
from autolrs.bench.methods import Run, search  # noqa: E402
from autolrs.bench.methods.ours import ABLATIONS, ablated  # noqa: E402
from autolrs.bench.score import TUNED_SCHEDULES  # noqa: E402
from autolrs.bench.tasks import Task  # noqa: E402
from autolrs.core.settings import PRESETS, Settings  # noqa: E402
from autolrs.rivals.marthe import GRADIENTS  # noqa: E402
from autolrs.rivals.schedules import SCHEDULES, cosine  # noqa: E402

METHODS = {name: one for name, one in ALL_METHODS.items() if one not in search.METHODS}  # those have tests of their own
STEPS = 400  # enough for horizon to search
OWN = {"hand_tuned": lambda optimizer, total: cosine(optimizer, 0.1, total)}
TASKS = {
    "sgd": Task("sgd", STEPS, (1e-2, 1.0), tiny_task.build, **OWN),
    "adam": Task("adam", STEPS, (1e-3, 1.0), tiny_task.adam, **OWN),
    "batch-norm": Task("batch-norm", 120, (1e-2, 1.0), tiny_task.batch_norm, **OWN),
}
FREE = ("schedule-free-default", "prodigy", "d-adaptation")
SEARCHES = ("clr-triangular2", "clr-exp-range", "clr-1cycle")  # at most a quarter of a run, for the range test


# Gentle enough for a line in four dimensions, where tuning would choose something of the kind.
OPTIONS = {"cycles": 2, "hypergradient_lr": 1e-3, "mu": 0.9, "patience": 5, "factor": 0.8}


def train(method, task, lr=0.1, points=32):
    """(the trained bundle, the outcome, the curve)."""
    torch.manual_seed(0)
    bundle = task.build(0)
    curve = Curve(bundle.test, task.total_steps, points)
    options = {name: OPTIONS[name] for name in method.options}
    outcome = method.train(bundle, Run(task, 0, curve, lr if method.tuned else None, options))
    return bundle, outcome, curve


@pytest.mark.parametrize(
    ("name", "kind"),
    [(name, kind) for name in METHODS for kind in ("sgd", "adam") if name not in ABLATIONS or kind == "sgd"],
)
def test_every_method_learns_and_reports_its_cost(name, kind):
    before = TASKS[kind].build(0).test()
    bundle, outcome, curve = train(METHODS[name], TASKS[kind])
    assert bundle.test() < 0.8 * before
    if name in SEARCHES:
        assert STEPS < outcome.raw_steps <= 1.25 * STEPS
    elif not METHODS[name].ours:
        assert outcome.raw_steps == STEPS * (GRADIENTS if name in ("rtho", "marthe") else 1)
        assert outcome.evaluations == (50 if name == "plateau" else 0)
    assert outcome.raw_steps >= STEPS
    assert (outcome.peak is None) == (name in FREE)
    assert not METHODS[name].tuned or outcome.peak >= 0.1
    assert curve.points[-1] == (STEPS, pytest.approx(bundle.test()))  # the curve ends at what is reported
    traced = [step for step, _ in curve.lrs]
    assert traced == [step for step, _ in curve.losses]
    kept = name in ("paper-keep-winner", "paper-practical")  # steps of a kept probe are not taken again
    assert set(traced) <= set(range(4, STEPS + 1, 4)) and len(traced) >= (70 if kept else 100)
    assert curve.losses[-1][1] < curve.losses[0][1]


@pytest.mark.parametrize("name", [name for name in METHODS if name not in ABLATIONS])
def test_measuring_the_curve_changes_nothing_about_the_run(name):
    task = TASKS["batch-norm"]
    bundle, _, curve = train(METHODS[name], task, points=8)
    assert len(curve.points) == 8
    without = train(METHODS[name], task, points=0)[0]
    # Schedule-Free computes its way from the one mode to the other and back, and rounds; the others are exact.
    rounding = 1e-4 if name.startswith("schedule-free") else 0.0
    torch.testing.assert_close(
        bundle.model.state_dict(), without.model.state_dict(), rtol=rounding, atol=rounding, equal_nan=True
    )


@pytest.mark.parametrize("name", METHODS)
def test_a_divergence_ends_in_a_loss_that_is_not_finite_and_not_in_an_exception(name):
    bundle, outcome, curve = train(METHODS[name], replace(tiny_task.EXPLOSIVE, **OWN))
    assert not math.isfinite(bundle.test())
    assert outcome.raw_steps >= tiny_task.STEPS
    assert {loss for _, loss in curve.points} == {math.inf}


def test_searching_costs_steps_that_are_counted():
    for name in ("horizon", "paper"):
        assert train(METHODS[name], TASKS["sgd"], points=0)[1].raw_steps > STEPS


def test_gradients_are_clipped_where_the_task_says_so():
    def clipped(seed):
        bundle = tiny_task.build(seed)
        bundle.clip = 1e-3
        return bundle

    task = Task("clipped", 20, (1e-2, 1.0), clipped)
    start = task.build(0).model.weight.detach().clone()
    bundle = train(METHODS["constant"], task, lr=1.0)[0]
    assert 0 < (bundle.model.weight - start).norm() <= 20 * 1e-3


def test_schedule_free_is_left_with_its_averaged_weights_and_statistics_that_fit_them():
    bundle, _, curve = train(METHODS["schedule-free"], TASKS["batch-norm"])
    norm = bundle.model[0]
    inputs = bundle.loader.tensors[0]
    assert norm.momentum == 0.1  # as it came
    # 20 batches of 16 are two and a half epochs: nearly the statistics of the whole set, unlike a moving average.
    assert torch.allclose(norm.running_mean, inputs.mean(0), atol=0.05)
    assert bundle.test() == pytest.approx(curve.points[-1][1])


def test_the_epochs_of_training_do_not_depend_on_recalibration():
    bundle = train(METHODS["schedule-free"], TASKS["batch-norm"])[0]
    assert bundle.loader.epoch == TASKS["batch-norm"].total_steps // len(bundle.loader)


def test_who_is_tuned_who_is_ours_and_what_must_be_installed():
    online = {"hypergradient", "rtho", "marthe", "plateau", "greedy"}
    tuned = {*SCHEDULES, "sgdr", "schedule-free", *online}
    assert {name for name, method in METHODS.items() if method.tuned} == tuned
    assert {name for name, method in METHODS.items() if method.ours} == {
        *("horizon", "horizon-plain", "paper", *ABLATIONS),
    }
    needs = {name: method.needs for name, method in METHODS.items() if method.needs}
    assert needs == {
        "schedule-free": "schedulefree",
        "schedule-free-default": "schedulefree",
        "prodigy": "prodigyopt",
        "d-adaptation": "dadaptation",
    }
    assert all(name == method.name for name, method in METHODS.items())
    assert set(TUNED_SCHEDULES) == {*SCHEDULES, "sgdr"}


def test_a_task_without_a_hand_tuned_schedule_is_refused():
    assert "hand-tuned schedule" in METHODS["hand-tuned"].refuses(tiny_task.TINY)
    assert METHODS["hand-tuned"].refuses(TASKS["sgd"]) is None


# Ablations: what each changes, and nothing else


@pytest.mark.parametrize("name", ABLATIONS)
def test_an_ablation_changes_what_it_says_and_nothing_else(name):
    task = TASKS["sgd"]
    base, changed = (Settings.make(**ablated(task, one), total_steps=STEPS) for one in ({}, ABLATIONS[name]))
    differ = {key for key, value in changed.to_dict().items() if base.to_dict()[key] != value}
    assert differ == ({"preset", *PRESETS["practical"]} if name == "paper-practical" else set(ABLATIONS[name]))


def test_settings_that_differ_from_the_defaults_are_recorded():
    settings = train(METHODS["paper-grid"], TASKS["batch-norm"], points=0)[1].settings
    assert settings["search"] == "grid" and settings["lr"] == [0.01, 1.0] and "kappa" not in settings


def test_the_papers_recipe_of_a_task_is_what_algorithm_1_runs_with():
    recipe = {"stage_steps": 100, "max_stage_steps": 200, "warmup_steps": 10}
    task = Task("recipe", STEPS, (1e-3, 0.5), tiny_task.build, recipe=recipe)
    settings = ablated(task, {})
    assert {name: settings[name] for name in recipe} == recipe
    assert settings["lr"] == (1e-3, 0.5) and settings["strategy"] == "paper"


def test_the_task_is_told_the_committed_steps_before_each():
    for name in ("cosine", "hypergradient", "marthe", "paper"):
        told = []

        def build(seed, told=told):
            bundle = tiny_task.build(seed)
            bundle.advance = told.append
            return bundle

        outcome = train(METHODS[name], Task("told", 120, (1e-2, 1.0), build), points=0)[1]
        assert sorted(told) == told and set(range(120)) <= set(told)
        assert len(told) == (outcome.raw_steps + 1 if name == "paper" else 120)
