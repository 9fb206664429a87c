"""What autolrs itself costs: time per step, per stage's decisions, per snapshot, and per simulated run.

Each figure is a median over repetitions in which the thing and what it is compared with are measured in turn, so that a
busy machine slows both. Bars are those the project holds itself to.
"""

from __future__ import annotations

import json
import platform
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import scipy
import torch
from torch import nn

import autolrs
from autolrs.bench import distributed
from autolrs.bench.rows import Row
from autolrs.core import engine, strategies
from autolrs.core.forecast import forecast
from autolrs.core.settings import Settings
from autolrs.core.types import Asked, Commit, Probe, Probed, peak_lr
from autolrs.run.session import Session
from autolrs.testing.simulated import SimulatedHost


def measure(*, quick: bool = False) -> Iterator[Row]:
    """All rows, each as soon as it is known. On one thread: on a busy machine, several measure their waiting."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield from _rows(quick)
    finally:
        torch.set_num_threads(threads)


def _rows(quick: bool) -> Iterator[Row]:
    repeats = 5 if quick else 41
    yield step_row("auto.step, constant LR", repeats, stage_steps=10**7, max_stage_steps=10**7)
    yield step_row("auto.step, LR ramps", repeats, warmup_steps=10**7, warmup_lr=1e-3)
    yield decisions_row(3 if quick else 21)
    yield forecast_row(3 if quick else 41)
    yield from snapshot_rows(3 if quick else 9, width=256 if quick else 2048)
    yield simulated_row(1 if quick else 3, steps=5_000 if quick else 100_000)
    if torch.distributed.is_available():
        yield from distributed.rows(quick=quick)


def save(rows: Sequence[Row], path: Path, *, quick: bool = False) -> None:
    """Write rows and what they were measured on."""
    versions = {
        "autolrs": autolrs.__version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "scipy": scipy.__version__,
        "machine": platform.machine(),
        "threads": 1,
    }
    values = {"versions": versions, "quick": quick, "rows": [{**asdict(row), "within": row.within} for row in rows]}
    path.write_text(json.dumps(values, indent=1) + "\n")


# auto.step


def step_row(name: str, repeats: int, chunk: int = 300, **settings: Any) -> Row:
    """Microseconds that `auto.step` adds to a step of a real loop, within one long stretch: the price of every step.

    The call is timed where it stands, beside a call that does nothing: its few microseconds would drown in the
    differences between two runs of whole loops.
    """
    loop = _Loop(settings)
    loop.run(chunk)
    chunks = [loop.run(chunk) for _ in range(repeats)]
    raw = {what: [median(parts[i]) for parts in chunks] for i, what in enumerate(_PARTS)}
    added = [call - nothing for call, nothing in zip(raw["auto.step"], raw["nothing"], strict=True)]
    beside = f"bare step {median(raw['bare step']):.0f} us, torch's LambdaLR.step {median(raw['LambdaLR.step']):.0f} us"
    return Row(name, median(added), 3.0, "us/step", beside, raw)


_PARTS = ("bare step", "nothing", "auto.step", "LambdaLR.step")


class _Loop:
    """A training loop over a tiny network that times its parts."""

    def __init__(self, settings: dict[str, Any]) -> None:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            self.model = nn.Linear(8, 1)
            self.x = torch.randn(8, 8)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-4)
        other = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=1e-4)
        self.scheduler = torch.optim.lr_scheduler.LambdaLR(other, lambda step: 1.0)
        other.step()
        self.auto = autolrs.AutoLRS(
            self.model, self.optimizer, lr=(1e-4, 1e-3), strategy="paper", total_steps=10**8, **settings
        )

    def run(self, steps: int) -> tuple[list[float], ...]:
        """Microseconds of each of `_PARTS` in every step."""
        model, optimizer, x, clock = self.model, self.optimizer, self.x, time.perf_counter_ns
        marks = []
        for _ in range(steps):
            begun = clock()
            loss = model(x).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            trained = clock()
            _nothing(loss)
            idle = clock()
            self.auto.step(loss)
            told = clock()
            self.scheduler.step()
            marks.append((begun, trained, idle, told, clock()))
        return tuple([(mark[i + 1] - mark[i]) / 1e3 for mark in marks] for i in range(len(_PARTS)))


def _nothing(loss: torch.Tensor) -> None:
    pass


# Decisions


def decisions_row(repeats: int) -> Row:
    """Milliseconds for the decisions of one paper stage: ten times ask, forecast 100 losses, tell; then the commit."""
    settings = Settings(total_steps=20_000, lr=(1e-3, 1.0))
    losses = [_losses(100, seed) for seed in range(settings.n_probes)]
    raw = _in_turn({"stage": lambda: _one_stage(settings, losses)}, repeats)
    times = [1e3 * seconds for seconds in raw["stage"]]
    return Row("decisions of one paper stage", median(times), 20.0, "ms", "10 ask/tell, 10 forecasts", {"stage": times})


def _one_stage(settings: Settings, losses: list[list[float]]) -> None:
    strategy = strategies.get("paper")
    state = engine.evolve(None, engine.start(settings))
    for series in losses:
        probe = engine.decide(state, strategy)
        assert isinstance(probe, Probe)
        state = engine.evolve(state, Asked(probe))
        promised = strategy.judge(state, probe, series)
        lr = peak_lr(probe.profile)
        state = engine.evolve(state, Probed(probe.stage, probe.index, lr, len(series), tuple(series), promised))
    assert isinstance(engine.decide(state, strategy), Commit)


def forecast_row(repeats: int) -> Row:
    """Milliseconds for the forecast of a long probe."""
    losses = np.array(_losses(3200, 0))
    raw = _in_turn({"forecast": lambda: forecast(losses, 32_000)}, repeats)
    times = [1e3 * seconds for seconds in raw["forecast"]]
    return Row("forecast of 3200 losses", median(times), 3.0, "ms", "", {"forecast": times})


def _losses(count: int, seed: int) -> list[float]:
    noise = np.random.default_rng(seed).standard_normal(count)
    curve = 2.0 * np.exp(-np.arange(1, count + 1) / (0.2 * count)) + 0.5
    return [float(v) for v in curve + 0.05 * noise]


# Snapshots


def snapshot_rows(repeats: int, width: int) -> Iterator[Row]:
    """Snapshot and restore of a network with Adam's state, over a plain copy of as many bytes."""
    model = nn.Sequential(*(nn.Linear(width, width) for _ in range(6)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, foreach=False)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    optimizer.zero_grad()
    host = autolrs.AutoLRS(model, optimizer, lr=(1e-4, 1e-3), strategy="paper", total_steps=10**6).host
    count = sum(parameter.numel() for parameter in model.parameters())
    source, target = torch.ones(3 * count), torch.empty(3 * count)
    kept: list[int] = [host.snapshot()]

    def snapshot() -> None:
        # The memory of the snapshot before is there to be used again, as it is from the second stage on.
        host.release(kept.pop())
        kept.append(host.snapshot())

    things: dict[str, Callable[[], Any]] = {
        "memcpy": lambda: target.copy_(source),
        "snapshot": snapshot,
        "restore": lambda: host.restore(kept[0]),
    }
    for thing in things.values():
        thing()
    raw = _in_turn(things, repeats)
    times = {what: [1e3 * seconds for seconds in values] for what, values in raw.items()}
    plain = median(times["memcpy"])
    size = f"{count / 1e6:.0f}M parameters + Adam, {12 * count / 1e6:.0f} MB"
    for what in ("snapshot", "restore"):
        beside = f"{size}: {median(times[what]):.0f} ms, memcpy {plain:.0f} ms"
        yield Row(f"{what} over memcpy", median(times[what]) / plain, 1.5, "x", beside, times)


# A whole run


def simulated_row(repeats: int, steps: int) -> Row:
    """Seconds inside autolrs in a whole simulated run, timed around each call: whole runs are noisier."""
    settings = Settings(total_steps=steps, lr=(1e-3, 1.0))
    clock = time.perf_counter_ns
    raw: dict[str, list[float]] = {"inside": [], "host": []}
    for _ in range(repeats):
        host = SimulatedHost(seed=1)
        session = Session(host, settings, strategies.get("paper"))
        inside = outside = 0
        session.begin()
        while not session.done:
            begun = clock()
            loss = host.step()
            stepped = clock()
            session.step(loss)
            inside += clock() - stepped
            outside += stepped - begun
        raw["inside"].append(inside / 1e9)
        raw["host"].append(outside / 1e9)
    beside = f"{session.raw_steps:,} steps in all, the host's own {median(raw['host']):.2f} s"
    return Row(f"simulated run of {steps:,} steps", median(raw["inside"]), 1.0, "s", beside, raw)


def _in_turn(things: dict[str, Callable[[], Any]], repeats: int) -> dict[str, list[float]]:
    """CPU seconds of each thing, measured one after the other in every repetition, after one that does not count.

    CPU time, because what other processes take is not ours; on an idle machine it is the same as wall time.
    """
    times: dict[str, list[float]] = {what: [] for what in things}
    for repeat in range(repeats + 1):
        for what, thing in things.items():
            begun = time.process_time()
            thing()
            if repeat:
                times[what].append(time.process_time() - begun)
    return times
