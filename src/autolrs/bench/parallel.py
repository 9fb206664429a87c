"""How the wall-clock of a parallel run shrinks with its workers: `python -m autolrs.bench.parallel [--ray] [--ddp]`.

The paper strategy with k probes of tau' steps a stage of tau should take `1 + ceil(k/P) tau'/tau` times the time of its
committed steps. First by workers on a virtual clock, where only the driver can spoil it; with `--ray` by real actors on
a CPU-bound task, where cores, memory and neighbours have a say. `--ddp` measures commits on one worker and on two
together.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from autolrs.core.settings import Settings
from autolrs.core.strategies.paper import Paper
from autolrs.core.types import Committed, Event, Finished
from autolrs.run.parallel import Driver
from autolrs.testing.pool import VirtualPool
from autolrs.testing.simulated import SimulatedHost

SIZES = (1, 2, 4, 8, 16, 32, 64)


@dataclass(frozen=True)
class Row:
    """Wall-clock over that of the committed steps alone, and what the law says."""

    workers: int
    ratio: float
    law: float


def law(settings: Settings, workers: int) -> float:
    """`1 + ceil(k/P) tau'/tau` for stages of equal length."""
    tau = settings.stage_steps
    return 1 + math.ceil(settings.n_probes / workers) * settings.probe_steps(tau) / tau


def simulated(n_probes: int = 10) -> Iterator[Row]:
    """Ratios of simulated runs: every step takes one second of virtual time, everything else none."""
    settings = Settings(
        lr=(1e-3, 1.0), total_steps=4000, stage_steps=1000, max_stage_steps=1000, n_probes=n_probes, replay=True
    )
    for workers in SIZES:
        pool = VirtualPool(SimulatedHost, workers)
        driver = Driver(pool, Paper())
        driver.start(settings.with_(parallel=workers))
        driver.run()
        yield Row(workers, pool.clock / 4000, law(settings, workers))


def on_ray(sizes: tuple[int, ...] = (1, 2), stage_steps: int = 400) -> Iterator[Row]:
    """Ratios of real runs: seconds of a searched stage over those of its commit alone, without the workers' start."""
    from autolrs import ray_

    settings = Settings(
        lr=(1e-4, 1e-1),
        total_steps=3 * stage_steps,
        stage_steps=stage_steps,
        max_stage_steps=stage_steps,
        replay=True,
    )
    for workers in sizes:
        clock = _Clock()
        ray_.fit(_digits, settings, num_workers=workers, on_event=clock)
        yield Row(workers, clock.ratio, law(settings, workers))


@dataclass(frozen=True)
class CommitRow:
    """How long a commit takes: seconds to start, and for each step."""

    commit: str
    start: float
    step: float


def commits(stage_steps: int = 400) -> Iterator[CommitRow]:
    """Commits of three lengths on one worker and on two together, and the line through their times."""
    from autolrs import ray_

    settings = Settings(
        lr=(1e-3, 1e-2),
        total_steps=7 * stage_steps,
        stage_steps=stage_steps,
        max_stage_steps=4 * stage_steps,
        n_probes=2,
        search="grid",
        replay=True,
    )
    for commit in ("one", "ddp"):
        clock = _Clock()
        ray_.fit(_digits, settings, num_workers=2, commit=commit, on_event=clock)
        step, start = np.polyfit([stage_steps, 2 * stage_steps, 4 * stage_steps], clock.committing, 1)
        yield CommitRow(commit, float(start), float(step))


class _Clock:
    """Listens to a run: from the first stage's end to the run's, by when every worker has long been there."""

    def __init__(self) -> None:
        self._ends: list[float] = []
        self._asked = 0.0
        self.committing: list[float] = []

    def __call__(self, event: Event) -> None:
        now = time.perf_counter()
        if isinstance(event, Committed):
            self._ends.append(now)
            self.committing.append(now - self._asked)
        elif not isinstance(event, Finished):
            self._asked = now  # a commit's own Asked is the last event before it

    @property
    def ratio(self) -> float:
        return (self._ends[-1] - self._ends[0]) / sum(self.committing[1:])


def _digits() -> Any:
    """A network on scikit-learn's digits that is wide enough for a step to take milliseconds on one core."""
    import torch
    from sklearn.datasets import load_digits
    from torch.nn import functional as F

    digits = load_digits()
    images, labels = torch.tensor(digits.data, dtype=torch.float32) / 16, torch.tensor(digits.target)
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        *(torch.nn.Linear(64, 512), torch.nn.ReLU(), torch.nn.Linear(512, 512), torch.nn.ReLU()),
        torch.nn.Linear(512, 10),
    )
    loader = torch.utils.data.DataLoader(
        torch.utils.data.TensorDataset(images, labels), batch_size=128, shuffle=True, drop_last=True
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    return model, optimizer, loader, lambda batch: F.cross_entropy(model(batch[0]), batch[1])


def main() -> None:
    """Print the ratios."""
    parser = argparse.ArgumentParser(prog="python -m autolrs.bench.parallel", description=__doc__)
    parser.add_argument("--ray", action="store_true", help="also measure 1 and 2 real workers (a minute or two)")
    parser.add_argument("--ddp", action="store_true", help="also measure commits on one and two workers (minutes)")
    arguments = parser.parse_args()
    print("workers  simulated     law")
    for row in simulated():
        print(f"{row.workers:7d}  {row.ratio:9.3f}  {row.law:6.3f}")
    if arguments.ray:
        print("workers        Ray     law")
        for row in on_ray():
            print(f"{row.workers:7d}  {row.ratio:9.3f}  {row.law:6.3f}", flush=True)
    if arguments.ddp:
        print("commit on  seconds to start  milliseconds a step")
        for commit in commits():
            print(f"{commit.commit:9s}  {commit.start:16.1f}  {1000 * commit.step:19.2f}", flush=True)


if __name__ == "__main__":
    main()
