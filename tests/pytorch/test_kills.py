"""A run that is killed again and again, at any moment, ends as if nothing had happened."""

import json
import multiprocessing
import os
import random
import signal

import pytest
from kill_worker import digest, run, with_evaluate
from nets import PAPER, make, train

import autolrs
from autolrs.run.journal import read

KILLS = 25
HORIZON = {"strategy": "horizon", "total_steps": 400, "keep_best": True}
REPLANNED = {**HORIZON, "replan_at": (0.5,), "max_cost": 1.4, "horizon_shift": -1.0, "averaging": True}

pytestmark = pytest.mark.skipif(os.name != "posix", reason="needs SIGKILL and a fork server")


@pytest.fixture(scope="module")
def processes():
    """Processes in which torch is imported already: one import for all of them."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch", "autolrs.pytorch.resume", "kill_worker"])
    return context


def expected(settings):
    model, optimizer, loader = make()
    auto = autolrs.AutoLRS(model, optimizer, **with_evaluate(settings, model))
    train(auto, model, optimizer, loader)
    return digest(auto, model)


@pytest.mark.slow
@pytest.mark.parametrize("settings", [PAPER, HORIZON, REPLANNED], ids=["paper", "horizon", "replanned"])
def test_killed_at_random_moments_a_run_ends_as_if_nothing_had_happened(settings, tmp_path, processes):
    """KILLS kills for each strategy. Runs that end between kills are compared and followed by new ones."""
    wanted = json.loads(json.dumps(expected(settings)))
    dice = random.Random(7)
    kills, ends, folder = 0, 0, tmp_path / "0"
    folder.mkdir()
    while kills < KILLS or not ends:
        process = processes.Process(target=run, args=(str(folder), settings, 0.001))
        process.start()
        if kills < KILLS:
            process.join(dice.uniform(0.0, 1.2))
        else:
            process.join(120)
        if process.exitcode is None:
            os.kill(process.pid, signal.SIGKILL)
            process.join()
            kills += 1
        else:
            assert process.exitcode == 0
            assert json.loads((folder / "result.json").read_text()) == wanted
            assert read(folder / "run")  # whole, whatever was torn on the way
            ends += 1
            folder = tmp_path / str(ends)
            folder.mkdir()
    assert kills >= KILLS and ends >= 1
