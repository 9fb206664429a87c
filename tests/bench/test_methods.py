"""One suite for every method, on a task of a few dozen steps."""

from __future__ import annotations

import math

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("schedulefree")
pytest.importorskip("prodigyopt")

import tiny_task  # noqa: E402 - torch may be missing
from autolrs.bench.curve import Curve  # noqa: E402
from autolrs.bench.methods import METHODS  # noqa: E402
from autolrs.bench.score import TUNED_SCHEDULES  # noqa: E402
from autolrs.bench.tasks import Task  # noqa: E402
from autolrs.rivals.schedules import SCHEDULES  # noqa: E402

STEPS = 400  # enough for horizon to search
TASKS = {
    "sgd": Task("sgd", STEPS, (1e-2, 1.0), tiny_task.build),
    "adam": Task("adam", STEPS, (1e-3, 1.0), tiny_task.adam),
    "batch-norm": Task("batch-norm", 120, (1e-2, 1.0), tiny_task.batch_norm),
}


def train(method, task, lr=0.1, points=32):
    """(the trained bundle, the outcome, the curve)."""
    torch.manual_seed(0)
    bundle = task.build(0)
    curve = Curve(bundle.test, task.total_steps, points)
    outcome = method.train(bundle, task, lr if method.tuned else None, curve)
    return bundle, outcome, curve


@pytest.mark.parametrize("kind", ["sgd", "adam"])
@pytest.mark.parametrize("name", METHODS)
def test_every_method_learns_and_reports_its_cost(name, kind):
    before = TASKS[kind].build(0).test()
    bundle, outcome, curve = train(METHODS[name], TASKS[kind])
    assert bundle.test() < 0.8 * before
    assert outcome.raw_steps >= STEPS and (METHODS[name].ours or outcome.raw_steps == STEPS)
    assert METHODS[name].ours or outcome.evaluations == 0
    assert (outcome.peak is None) == (name in ("schedule-free-default", "prodigy"))
    assert not METHODS[name].tuned or outcome.peak == 0.1
    assert curve.points[-1] == (STEPS, pytest.approx(bundle.test()))  # the curve ends at what is reported


@pytest.mark.parametrize("name", METHODS)
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
    bundle, outcome, curve = train(METHODS[name], tiny_task.EXPLOSIVE)
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
    assert {name for name, method in METHODS.items() if method.tuned} == {*SCHEDULES, "schedule-free"}
    assert {"horizon", "paper"} <= {name for name, method in METHODS.items() if method.ours}
    needs = {name: method.needs for name, method in METHODS.items() if method.needs}
    assert needs == {
        "schedule-free": "schedulefree",
        "schedule-free-default": "schedulefree",
        "prodigy": "prodigyopt",
    }
    assert all(name == method.name for name, method in METHODS.items())
    assert set(TUNED_SCHEDULES) == set(SCHEDULES)
