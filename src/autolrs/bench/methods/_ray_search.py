"""The process in which ray.tune searches: `python -m autolrs.bench.methods._ray_search KIND TASK PROFILE SEED ...`.

A population of trainings advances in units. ASHA searches (LR, decay) and stops the worse ones; PBT and PB2 move the LR
of a running training, and what they leave is the LR of each unit along the best one's ancestry.
"""

from __future__ import annotations

import json
import math
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch

from autolrs.bench.methods.search import DECAY, Trial
from autolrs.bench.tasks import TASKS

WORST = 1e30  # schedulers compare losses and do arithmetic with them: infinity would spread


def train(config: dict[str, Any]) -> None:
    """The trainable: one unit after another, with a checkpoint after each."""
    from ray import tune

    torch.set_num_threads(1)
    trial = Trial(TASKS[config["task"]].at(config["profile"]), config["seed"], config["units"])
    first, lrs = 1, []
    start = tune.get_checkpoint()
    if start is not None:
        with start.as_directory() as folder:
            saved = torch.load(Path(folder) / "state.pt", weights_only=False)
        trial.bundle.model.load_state_dict(saved["model"])
        trial.bundle.optimizer.load_state_dict(saved["optimizer"])
        trial.steps, first, lrs = saved["steps"], saved["unit"] + 1, saved["lrs"]
    for unit in range(first, config["units"] + 1):
        before = trial.steps
        value = trial.advance(unit, config["lr"], config["decay"])
        lrs = [*lrs, config["lr"]]
        with open(config["costs"], "a") as file:  # ray's own tables forget what a training did before it was replaced
            file.write(f"{trial.steps - before}\n")
        with tempfile.TemporaryDirectory() as folder:
            state = {"model": trial.bundle.model.state_dict(), "optimizer": trial.bundle.optimizer.state_dict()}
            torch.save({**state, "steps": trial.steps, "unit": unit, "lrs": lrs}, Path(folder) / "state.pt")
            metrics = {"loss": min(value, WORST), "unit": unit, "lrs": json.dumps(lrs)}
            tune.report(metrics, checkpoint=tune.Checkpoint.from_directory(folder))
        if not math.isfinite(value):
            return


def search(kind: str, task: str, profile: str, seed: int, units: int, population: int, folder: str) -> dict[str, Any]:
    """What was found, and what it took."""
    import ray
    from ray import tune
    from ray.tune.schedulers import ASHAScheduler, PopulationBasedTraining
    from ray.tune.schedulers.pb2 import PB2

    low, high = TASKS[task].at(profile).lr
    every = max(1, units // 5)  # five decisions a run
    common: dict[str, Any] = {"time_attr": "unit", "metric": "loss", "mode": "min"}
    scheduler: Any
    if kind == "asha":
        scheduler = ASHAScheduler(max_t=units, grace_period=1, reduction_factor=3, **common)
        population *= 3
    elif kind == "pbt":
        mutations = {"lr": tune.loguniform(low, high)}
        scheduler = PopulationBasedTraining(
            perturbation_interval=every, hyperparam_mutations=mutations, synch=True, **common
        )
    else:
        scheduler = PB2(perturbation_interval=every, hyperparam_bounds={"lr": [low, high]}, synch=True, **common)
    ray.init(num_cpus=max(1, (os.cpu_count() or 1)), include_dashboard=False, log_to_driver=False)
    costs = Path(folder) / "costs.txt"
    space = {
        "task": task, "profile": profile, "seed": seed, "units": units, "costs": str(costs),
        "lr": tune.loguniform(low, high),
        "decay": tune.uniform(*DECAY) if kind == "asha" else 1.0,
    }  # fmt: skip
    import numpy as np

    np.random.seed(seed)  # noqa: NPY002 - ray.tune draws from the global generator
    fitted = tune.Tuner(
        train,
        param_space=space,
        tune_config=tune.TuneConfig(scheduler=scheduler, num_samples=population, reuse_actors=True),
        run_config=tune.RunConfig(storage_path=folder, verbose=0),
    ).fit()
    if fitted.errors:
        raise fitted.errors[0]
    results: list[Any] = [fitted[i] for i in range(len(fitted))]
    steps = [int(line) for line in costs.read_text().split()]
    whole = [result for result in results if result.metrics["unit"] == units] or results
    best = min(whole, key=lambda result: result.metrics["loss"])
    ray.shutdown()
    return {
        "lr": best.config["lr"],
        "decay": best.config["decay"],
        "lrs": json.loads(best.metrics["lrs"]),
        "raw_steps": sum(steps),
        "evaluations": len(steps),
    }


if __name__ == "__main__":
    kind, task, profile, seed, units, population, folder, answer = sys.argv[1:]
    found = search(kind, task, profile, int(seed), int(units), int(population), folder)
    Path(answer).write_text(json.dumps(found))
