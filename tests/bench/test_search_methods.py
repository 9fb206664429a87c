"""Searches over whole schedules: what is counted, what is found, and ray in a process of its own."""

from __future__ import annotations

import math

import pytest

torch = pytest.importorskip("torch")
optuna = pytest.importorskip("optuna")

import tiny_task  # noqa: E402 - torch may be missing
from autolrs.bench.curve import Curve  # noqa: E402
from autolrs.bench.methods import METHODS, Run, search  # noqa: E402
from autolrs.bench.tasks import TASKS, Task  # noqa: E402

OPTUNA = ["hyperband", "bo-early-stopping"]
# GPSampler is experimental in optuna, and says so.
pytestmark = pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")


def train(name, task, seed=0):
    bundle = task.build(seed)
    curve = Curve(bundle.test, task.total_steps)
    return bundle, METHODS[name].train(bundle, Run(task, seed, curve)), curve


class Counted(torch.optim.SGD):
    steps = 0

    def step(self, closure=None):
        Counted.steps += 1
        return super().step(closure)


@pytest.mark.parametrize("name", OPTUNA)
def test_every_step_of_every_trial_is_counted_and_the_run_learns(name):
    Counted.steps = 0

    def build(seed):
        return tiny_task.build(seed, optimizer=lambda net: Counted(net.parameters(), lr=0.1))

    task = Task("tiny", 60, (1e-3, 0.1), build).at("smoke")
    before = task.build(0).test()
    bundle, outcome, curve = train(name, task)
    assert outcome.raw_steps == Counted.steps > 60
    assert bundle.test() < 0.8 * before
    assert curve.points[-1] == (60, pytest.approx(bundle.test()))
    assert 1e-3 <= outcome.settings["lr"] <= 0.1 and 0.9 <= outcome.settings["decay"] <= 1.0
    assert outcome.evaluations >= outcome.settings["trials"]


def test_hyperband_stops_most_trials_early():
    task = Task("tiny", 108, (1e-3, 0.1), tiny_task.build)
    outcome = train("hyperband", task)[1]
    assert outcome.settings["trials"] == 49
    assert outcome.raw_steps < 0.6 * 50 * 108


def test_hyperbands_trials_are_those_of_its_brackets():
    assert [search.hyperband_trials(units) for units in (3, 9, 27)] == [3 + 2, 9 + 5 + 3, 27 + 12 + 6 + 4]


@pytest.mark.parametrize("name", OPTUNA)
def test_a_search_in_which_all_diverges_ends_diverged(name):
    bundle, outcome, _ = train(name, tiny_task.EXPLOSIVE.at("smoke"))
    assert not math.isfinite(bundle.test())
    assert outcome.raw_steps >= tiny_task.STEPS


def test_a_trials_lr_decays_350_times_a_run():
    task = Task("tiny", 100, (1e-3, 0.1), tiny_task.build)
    trial = search.Trial(task, 0, 4)
    trial.advance(2, 0.1, 0.95)
    assert trial.steps == 50
    assert trial.bundle.optimizer.param_groups[0]["lr"] == pytest.approx(0.1 * 0.95 ** (350 * 49 / 100))


def test_trials_do_not_train_on_the_runs_own_seed():
    seeds = []
    task = Task("tiny", 12, (1e-3, 0.1), lambda seed: seeds.append(seed) or tiny_task.build(seed)).at("smoke")
    train("hyperband", task, seed=3)
    assert seeds[0] == 3 and set(seeds[1:]) == {3 + search.TRIAL_SEEDS}


def test_a_task_that_ray_cannot_look_up_is_refused():
    assert "not listed" in METHODS["pbt"].refuses(tiny_task.TINY)
    assert METHODS["pbt"].refuses(TASKS["digits-mlp"]) is None


@pytest.mark.slow  # starts ray
@pytest.mark.parametrize("name", ["asha", "pbt", "pb2"])
def test_ray_searches_in_a_process_of_its_own_and_all_steps_are_counted(name):
    pytest.importorskip("ray")
    pytest.importorskip("sklearn")
    task = TASKS["digits-mlp"].at("smoke")
    _, outcome, curve = train(name, task)
    assert outcome.raw_steps > 1.5 * task.total_steps and outcome.evaluations >= 3
    assert curve.points[-1][0] == task.total_steps
    assert task.lr[0] <= outcome.peak <= task.lr[1]
    if name != "asha":
        assert len(outcome.settings["lrs"]) == search.RAY_UNITS["smoke"]
