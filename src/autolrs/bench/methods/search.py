"""Searches over whole schedules, all of their cost counted: Hyperband and BO by optuna; ASHA, PBT and PB2 by ray.tune.

As the paper sets Hyperband up (Appendix A.5.3): an initial LR, log-uniform over the task's interval, and a decay factor
between .9 and 1 that is applied 350 times a run. Trials train on a seed of their own; then what was found trains the
run's own bundle, which is counted too.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from autolrs.bench.methods._method import Method, Outcome, Run, Train, endless, step, train
from autolrs.bench.tasks import Bundle, Task
from autolrs.rivals.schedules import set_lr

DECAYS = 350  # a run, the paper's epochs
DECAY = (0.9, 1.0)
TRIAL_SEEDS = 1000  # a trial's seed is the run's plus this
UNITS = {"smoke": 3, "cpu": 27, "paper": 350}  # the finest share of a run that a trial is judged after
BO_TRIALS = {"smoke": 3, "cpu": 20, "paper": 20}
POPULATION = {"smoke": 2, "cpu": 8, "paper": 8}
RAY_UNITS = {"smoke": 3, "cpu": 10, "paper": 50}


class Trial:
    """One training of a task whose LR decays exponentially, taken forward unit by unit."""

    def __init__(self, task: Task, seed: int, units: int) -> None:
        self.task, self.units = task, units
        self.bundle = task.build(seed + TRIAL_SEEDS)
        self.steps = 0
        self._batches = endless(self.bundle.loader)

    def advance(self, unit: int, lr: float, decay: float = 1.0) -> float:
        """Train to the end of a unit (counted from 1); returns the validation loss, infinite once it has diverged."""
        total = self.task.total_steps
        for done in range(self.steps, round(unit * total / self.units)):
            self.bundle.advance(done)
            set_lr(self.bundle.optimizer, lr * decay ** (DECAYS * done / total))
            step(self.bundle, self.bundle.optimizer, next(self._batches))
            self.steps += 1
        value = self.bundle.evaluate()
        return value if math.isfinite(value) else math.inf


def hyperband_trials(units: int, eta: int = 3) -> int:
    """Configurations in one round of all of Hyperband's brackets.

    >>> hyperband_trials(27)
    49
    """
    top = int(math.log(units, eta) + 1e-9)
    return sum(math.ceil((top + 1) / (s + 1) * eta**s) for s in range(top + 1))


def _optuna(make: Callable[[Any, Run, int], tuple[Any, Any, int]]) -> Train:
    """`make(optuna, run, units)` gives sampler, pruner and number of trials."""

    def run_it(bundle: Bundle, run: Run) -> Outcome:
        import optuna

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        units = UNITS[run.task.profile]
        sampler, pruner, trials = make(optuna, run, units)
        study = optuna.create_study(sampler=sampler, pruner=pruner)
        steps = evaluations = 0

        def objective(asked: Any) -> float:
            nonlocal steps, evaluations
            lr = asked.suggest_float("lr", *run.task.lr, log=True)
            decay = asked.suggest_float("decay", *DECAY)
            trial, value = Trial(run.task, run.seed, units), math.inf
            try:
                for unit in range(1, units + 1):
                    value = trial.advance(unit, lr, decay)
                    evaluations += 1
                    asked.report(value, unit)
                    if not math.isfinite(value) or (unit < units and asked.should_prune()):
                        raise optuna.TrialPruned
            finally:
                steps += trial.steps
            return value

        study.optimize(objective, n_trials=trials)
        whole = [one for one in study.trials if one.state == optuna.trial.TrialState.COMPLETE]
        if not whole:  # all diverged: so does the run, at the lowest LR of the space
            return _final(bundle, run, run.task.lr[0], 1.0, steps, evaluations, trials)
        best = min(whole, key=lambda one: float(one.value or 0.0))
        return _final(bundle, run, best.params["lr"], best.params["decay"], steps, evaluations, trials)

    return run_it


def _final(bundle: Bundle, run: Run, lr: float, decay: float, steps: int, evaluations: int, trials: int) -> Outcome:
    """Train the run's own bundle with what was found."""
    total = run.task.total_steps
    set_lr(bundle.optimizer, lr)
    train(
        bundle, run, bundle.optimizer,
        lambda done, loss: set_lr(bundle.optimizer, lr * decay ** (DECAYS * done / total)),
    )  # fmt: skip
    return Outcome(steps + total, evaluations, lr, {"lr": lr, "decay": decay, "trials": trials})


def _hyperband(optuna: Any, run: Run, units: int) -> tuple[Any, Any, int]:
    return (
        optuna.samplers.RandomSampler(seed=run.seed),
        optuna.pruners.HyperbandPruner(min_resource=1, max_resource=units, reduction_factor=3),
        hyperband_trials(units),
    )


def _bayesian(optuna: Any, run: Run, units: int) -> tuple[Any, Any, int]:
    return (
        optuna.samplers.GPSampler(seed=run.seed),
        optuna.pruners.MedianPruner(n_startup_trials=3, n_warmup_steps=max(1, units // 9)),
        BO_TRIALS[run.task.profile],
    )


def _ray(kind: str) -> Train:
    """ray.tune in a process of its own: it starts servers and threads that a benchmark's process should not have."""

    def run_it(bundle: Bundle, run: Run) -> Outcome:
        profile = run.task.profile
        with tempfile.TemporaryDirectory(prefix="autolrs-ray-") as folder:
            answer = Path(folder) / "answer.json"
            command = [sys.executable, "-m", "autolrs.bench.methods._ray_search", kind, run.task.name, profile]
            command += [str(run.seed), str(RAY_UNITS[profile]), str(POPULATION[profile]), folder, str(answer)]
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode or not answer.exists():
                raise RuntimeError(f"ray.tune failed on {run.task.name}: {done.stderr.strip()[-2000:]}")
            found = json.loads(answer.read_text())
        if kind == "asha":
            lr, decay = found["lr"], found["decay"]
            return _final(bundle, run, lr, decay, found["raw_steps"], found["evaluations"], POPULATION[profile])
        lrs, total = found["lrs"], run.task.total_steps

        def at(done: int) -> float:
            return float(lrs[min(len(lrs) - 1, done * len(lrs) // total)])

        set_lr(bundle.optimizer, at(0))
        train(bundle, run, bundle.optimizer, lambda done, loss: set_lr(bundle.optimizer, at(done)))
        return Outcome(found["raw_steps"] + total, found["evaluations"], max(lrs), {"lrs": lrs})

    return run_it


def _unlisted(task: Task) -> str | None:
    from autolrs.bench.tasks import TASKS

    return None if task.name in TASKS else "its processes look tasks up by name, and this one is not listed"


METHODS = (
    Method("hyperband", _optuna(_hyperband), needs="optuna"),
    Method("bo-early-stopping", _optuna(_bayesian), needs="optuna"),
    *(Method(kind, _ray(kind), needs="ray", extra="ray", refuses=_unlisted) for kind in ("asha", "pbt", "pb2")),
)
