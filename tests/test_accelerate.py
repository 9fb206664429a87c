"""AutoLRS in a loop with Hugging Face Accelerate: prepared objects, its checkpoints, accumulation, two processes."""

from __future__ import annotations

import json
import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState, GradientState, PartialState
from accelerate.utils import DataLoaderConfiguration, GradientAccumulationPlugin
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

import autolrs

ROOT = Path(__file__).parents[1]
EXAMPLE = ROOT / "examples" / "accelerate_digits.py"
STEPS = 60
PAPER = {
    "strategy": "paper",
    "lr": (1e-3, 1e-1),
    "stage_steps": 20,
    "max_stage_steps": 40,
    "probe_fraction": 0.25,
    "n_probes": 3,
    "replay": True,
}
HORIZON = {"strategy": "horizon", "max_cost": 2.2}
BOTH = pytest.mark.parametrize("settings", [PAPER, HORIZON], ids=["paper", "horizon"])


@pytest.fixture(autouse=True)
def forget():
    """Accelerate keeps global state; no test may depend on another's."""
    reset()


def reset():
    for state in (AcceleratorState, PartialState, GradientState):
        state._reset_state()


class Run:
    """A small training; the same each time it is made."""

    def __init__(self, settings, accumulation=1, schedule=None, seedable=False):
        plugin = GradientAccumulationPlugin(num_steps=accumulation, sync_with_dataloader=False)
        data = DataLoaderConfiguration(use_seedable_sampler=seedable)
        self.accelerator = Accelerator(cpu=True, gradient_accumulation_plugin=plugin, dataloader_config=data)
        torch.manual_seed(0)
        x = torch.randn(52, 6)
        data = TensorDataset(x, (x @ torch.randn(6, 3)).argmax(1))
        model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.2), nn.Linear(8, 3))
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        loader = DataLoader(data, batch_size=8, shuffle=True)  # seven batches: accumulated steps cross epochs
        self.model, self.optimizer, self.loader = self.accelerator.prepare(model, optimizer, loader)
        self.losses = []  # of committed steps
        if schedule is None:
            self.auto = autolrs.AutoLRS(self.model, self.optimizer, total_steps=STEPS, **settings)
            self.accelerator.register_for_checkpointing(self.auto)

    def step(self, batch):
        """The loss, and whether the optimizer stepped."""
        with self.accelerator.accumulate(self.model):
            loss = F.cross_entropy(self.model(batch[0]), batch[1])
            self.accelerator.backward(loss)
            self.optimizer.step()
            self.optimizer.zero_grad()
        return loss.detach(), self.accelerator.sync_gradients

    def train(self, stop_at=None):
        parts = []
        for batch in self.auto.batches(self.loader):
            loss, stepped = self.step(batch)
            parts.append(loss)
            if stepped:
                info = self.auto.step(torch.stack(parts).mean())
                self.losses += [] if info.exploring else [float(torch.stack(parts).mean())]
                parts = []
                if self.auto.raw_steps == stop_at:
                    break
        return self

    def state(self):
        return [tensor.clone() for tensor in self.model.state_dict().values()]


@BOTH
@pytest.mark.parametrize("accumulation", [1, 2])
def test_a_run_with_prepared_objects_equals_a_replay_without_probes(settings, accumulation):
    found = Run(settings, accumulation).train()
    schedule = found.auto.schedule
    assert found.auto.committed_steps == schedule.total_steps == STEPS
    assert found.auto.raw_steps > STEPS

    replay = Run(settings, accumulation, schedule=schedule)
    scheduler = schedule.to_torch(replay.optimizer.optimizer)
    losses, parts = [], []
    while len(losses) < STEPS:
        for batch in replay.loader:
            loss, stepped = replay.step(batch)
            parts.append(loss)
            if stepped:
                scheduler.step()
                losses.append(float(torch.stack(parts).mean()))
                parts = []
                if len(losses) == STEPS:
                    break
    assert found.losses == losses
    assert all(map(torch.equal, found.state(), replay.state()))


@BOTH
@pytest.mark.parametrize("at, seedable", [(7, False), (55, False), (100, True)])
def test_a_killed_run_goes_on_from_save_state_to_the_bit(tmp_path, settings, at, seedable):
    whole = Run(settings, accumulation=2, seedable=seedable).train()
    killed = Run(settings, accumulation=2, seedable=seedable).train(stop_at=at)
    killed.accelerator.save_state(tmp_path / "checkpoint")
    reset()
    resumed = Run(settings, accumulation=2, seedable=seedable)
    resumed.accelerator.load_state(tmp_path / "checkpoint")
    assert resumed.auto.raw_steps == at
    resumed.train()
    assert resumed.auto.schedule == whole.auto.schedule
    assert all(map(torch.equal, resumed.state(), whole.state()))


@BOTH
def test_the_schedule_is_that_of_a_plain_loop(settings):
    """SGD on a quadratic with noise from the batches, without and with Accelerate."""

    def run(prepare):
        torch.manual_seed(0)
        model = nn.Linear(8, 1, bias=False)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        loader = DataLoader(TensorDataset(torch.randn(40, 8)), batch_size=4)
        model, optimizer, loader = prepare(model, optimizer, loader)
        auto = autolrs.AutoLRS(model, optimizer, total_steps=STEPS, **settings)
        for (batch,) in auto.batches(loader):
            loss = (model(batch) - batch.sum(1, keepdim=True)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            auto.step(loss)
        return auto.schedule

    assert run(Accelerator(cpu=True).prepare) == run(lambda *objects: objects)


def test_the_example_goes_on_from_its_checkpoint(tmp_path):
    main = runpy.run_path(str(EXAMPLE))["main"]
    whole = main(150)
    reset()
    assert main(150, str(tmp_path / "a"), stop_at=30).raw_steps == 30
    reset()
    resumed = main(150, str(tmp_path / "a"))
    assert resumed.schedule == whole.schedule
    assert resumed.committed_steps == 150


TWO = """
import json, runpy, sys
import torch
from accelerate import Accelerator
from accelerate_ranks import leave
main = runpy.run_path(sys.argv[1])["main"]
stop_at = int(sys.argv[4]) or None
auto = main(int(sys.argv[2]), sys.argv[3], stop_at)
accelerator = Accelerator()
weights = torch.cat([p.detach().flatten() for p in auto.model.parameters()])
row = {
    "rank": accelerator.process_index,
    "processes": accelerator.num_processes,
    "committed": auto.committed_steps,
    "raw": auto.raw_steps,
    "segments": [[s.steps, s.lr_start, s.lr_end] for s in auto.schedule.segments],
    "weights": weights.double().sum().item(),
}
open(f"{sys.argv[3]}-{accelerator.process_index}.json", "w").write(json.dumps(row))
leave(accelerator)
"""


def launch(script, folder, stop_at=0, steps=150):
    """Two processes over gloo; what each reports."""
    environment = {
        **{**os.environ, "OMP_NUM_THREADS": "1", "MASTER_ADDR": "127.0.0.1", "ACCELERATE_USE_CPU": "true"},
        "PYTHONPATH": os.pathsep.join([str(ROOT / "tests"), *sys.path]),
    }
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    subprocess.run(
        [*command, script, EXAMPLE, str(steps), folder, str(stop_at)], check=True, timeout=150, env=environment
    )
    return [json.loads(Path(f"{folder}-{rank}.json").read_text()) for rank in range(2)]


@pytest.mark.distributed
@pytest.mark.slow
def test_two_processes_take_the_same_steps_at_the_same_lrs(tmp_path):
    script = tmp_path / "two.py"
    script.write_text(TWO)
    first, second = launch(script, tmp_path / "whole")
    assert (first["rank"], second["rank"], first["processes"]) == (0, 1, 2)
    assert first["committed"] == second["committed"] == 150, "steps were counted per process"
    assert first["raw"] == second["raw"] > 150
    assert first["segments"] == second["segments"]
    assert first["weights"] == second["weights"]
    launch(script, tmp_path / "killed", stop_at=30)
    assert launch(script, tmp_path / "killed") == [first, second]


OWN = """
import sys
import torch
from accelerate_ranks import leave
from autolrs.core.types import Probed
from test_accelerate import HORIZON, PAPER, Run, reset

def make(settings, seed):
    reset()
    run = Run(settings, accumulation=2)
    torch.manual_seed(seed + run.accelerator.process_index)  # each rank drops out for itself
    run.probed = []
    run.auto.on_event(lambda event: run.probed.append(event) if isinstance(event, Probed) else None)
    return run

for settings, points in ((PAPER, (7, 30, 40)), (HORIZON, (7, 100))):
    whole = make(settings, 0).train()
    for at in points:
        folder = f"{sys.argv[1]}/{settings['strategy']}-{at}"
        make(settings, 0).train(stop_at=at).accelerator.save_state(folder)
        resumed = make(settings, 70)
        resumed.accelerator.load_state(folder)
        assert resumed.auto.raw_steps == at
        resumed.train()
        assert resumed.auto.schedule == whole.auto.schedule, at
        assert resumed.probed == whole.probed[len(whole.probed) - len(resumed.probed):], at
        assert all(map(torch.equal, resumed.state(), whole.state())), at
        assert resumed.losses == whole.losses[-len(resumed.losses):], at
leave(whole.accelerator)
"""


@pytest.mark.distributed
@pytest.mark.slow
def test_each_of_two_processes_goes_on_with_its_own_random_numbers(tmp_path):
    script = tmp_path / "own.py"
    script.write_text(OWN)
    environment = {
        **{**os.environ, "OMP_NUM_THREADS": "1", "MASTER_ADDR": "127.0.0.1", "ACCELERATE_USE_CPU": "true"},
        "PYTHONPATH": os.pathsep.join([str(ROOT / "tests"), *sys.path]),
    }
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    done = subprocess.run([*command, script, tmp_path], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
