"""The Lightning adapter after a kill, from Lightning's own checkpoints, and in two processes."""

from __future__ import annotations

import copy

import lightning
import pytest
import torch
from lightning.pytorch.callbacks import (
    Callback,
    ModelCheckpoint,
    OnExceptionCheckpoint,
)
from torch.utils.data import DataLoader, DistributedSampler
from torchdata.stateful_dataloader import StatefulDataLoader

import autolrs
from autolrs.cli.doctor import examine
from autolrs.lightning_ import AutoLRSCallback
from autolrs.run.comm import LostRankError
from lightning_cases import QUIET, SMALL, STEPS, Net, Plain, assert_same, fit, loader, seeded

pytestmark = QUIET


# Kill and resume


class Kill(Callback):
    """Ends the process, as far as the Trainer can tell, after some batches."""

    def __init__(self, after):
        self.after, self.batches = after, 0

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        self.batches += 1
        if self.batches == self.after:
            raise KilledError


class KilledError(BaseException):
    pass


def stateful(**options):
    return loader(StatefulDataLoader, **options)


@pytest.mark.parametrize(
    ("strategy", "kind", "limits"),
    [
        ("horizon", stateful, {}),
        ("paper", stateful, {}),
        ("paper", loader, {}),
        ("horizon", loader, {"max_epochs": 5}),
        ("paper", loader, {"max_epochs": 5, "limit_val_batches": 0}),
        ("averaged", stateful, {}),
    ],
    ids=[
        *("within an epoch, horizon", "within an epoch, paper", "between epochs", "epochs", "epochs, no validation"),
        "within an epoch, averaged",
    ],
)
def test_a_killed_run_goes_on_from_lightnings_checkpoint_to_the_bit(tmp_path, strategy, kind, limits):
    settings = {**SMALL["horizon"], "averaging": True} if strategy == "averaged" else SMALL[strategy]

    def make(folder, ckpt_path=None, *more):
        total = None if limits else STEPS
        module, callback = seeded(Net), AutoLRSCallback(total, run_dir=folder / "run", **settings)
        # Ordinary loaders can only go on between epochs.
        how = {"every_n_train_steps": 5} if kind is stateful else {"save_on_train_epoch_end": True}
        saver = ModelCheckpoint(folder, "last", save_top_k=1, enable_version_counter=False, **how)
        fit(module, [callback, saver, *more], kind(), ckpt_path, enable_checkpointing=True, **limits)
        return module, callback

    expected, whole = make(tmp_path / "whole")
    with pytest.raises(KilledError):
        make(tmp_path / "killed", None, Kill(21))
    torch.manual_seed(99)
    found, resumed = make(tmp_path / "killed", tmp_path / "killed" / "last.ckpt")
    assert resumed.schedule == whole.schedule
    assert_same(found.state_dict(), expected.state_dict())
    assert autolrs.Schedule.load(tmp_path / "killed" / "run" / "schedule.json") == whole.schedule
    assert {check.verdict for check in examine(tmp_path / "killed" / "run")} <= {"ok", "skipped"}


def test_a_checkpoint_saved_when_a_probe_fails_is_that_of_the_moment_before_it(tmp_path):
    class Failing(Plain):
        fuse = 0

        def training_step(self, batch, batch_idx):
            Failing.fuse += 1
            if Failing.fuse == 9:
                raise ZeroDivisionError
            return super().training_step(batch, batch_idx)

    module = seeded(Failing)
    before = copy.deepcopy(module.state_dict())
    saver, options = OnExceptionCheckpoint(tmp_path), {"enable_checkpointing": True}
    with pytest.raises(ZeroDivisionError):
        fit(module, [AutoLRSCallback(STEPS, **SMALL["horizon"]), saver], stateful(), "last", **options)
    assert_same(dict(module.state_dict()), dict(before))
    saved = torch.load(saver.ckpt_path, weights_only=True)
    assert saved["global_step"] == 0
    assert_same(dict(saved["state_dict"]), dict(before))
    whole, resumed = (AutoLRSCallback(STEPS, **SMALL["horizon"]) for _ in range(2))
    expected, found = seeded(Failing), seeded(Failing, 1)
    fit(found, [resumed], stateful(), saver.ckpt_path)
    torch.manual_seed(0)
    fit(expected, [whole], stateful())
    assert resumed.schedule.total_steps == whole.schedule.total_steps == STEPS


def test_a_resumed_run_can_be_extended_and_not_changed(tmp_path):
    saver = ModelCheckpoint(tmp_path, "last", enable_version_counter=False)
    fit(seeded(Plain), [AutoLRSCallback(12, max_cost=1.0), saver], enable_checkpointing=True)
    longer = AutoLRSCallback(18, max_cost=1.0)
    trainer = fit(seeded(Plain), [longer], ckpt_path=tmp_path / "last.ckpt")
    assert trainer.global_step == longer.schedule.total_steps == 18
    with pytest.raises(ValueError, match=r"`max_cost` is 1.0 in the checkpoint and 1.5 here"):
        fit(seeded(Plain), [AutoLRSCallback(18, max_cost=1.5)], ckpt_path=tmp_path / "last.ckpt")


def test_a_checkpoint_holds_model_and_optimizer_once_more_at_most(tmp_path):
    module = seeded(Plain)
    saver = ModelCheckpoint(tmp_path, "last", every_n_train_steps=10, enable_version_counter=False)
    fit(module, [AutoLRSCallback(STEPS, **SMALL["paper"]), saver], enable_checkpointing=True)
    state = torch.load(tmp_path / "last.ckpt", weights_only=True)["callbacks"]["AutoLRSCallback"]
    assert state["live"].keys() == {"tracked", "rng"}
    assert state["live"]["tracked"] == {"precision": {}}
    assert state["snapshots"] == {}
    assert state["feed"] is None


# Two processes


class Report(Callback):
    """Writes down what its rank ended with, in a process that will be gone."""

    def __init__(self, folder):
        self.folder, self.lrs = folder, []

    def on_before_optimizer_step(self, trainer, module, optimizer):
        self.lrs.append(optimizer.param_groups[0]["lr"])

    def on_train_end(self, trainer, module):
        callback = trainer.callbacks[0]
        values = {
            "weights": module.state_dict(),
            "optimizer": trainer.optimizers[0].state_dict(),
            "lrs": self.lrs,
            "schedule": callback.schedule.to_json(),
            "steps": trainer.global_step,
            "raw": callback.auto.raw_steps,
            "ranks": trainer.world_size,
        }
        torch.save(values, self.folder / f"rank{trainer.global_rank}.pt")


@pytest.mark.distributed
@pytest.mark.timeout(120)
@pytest.mark.parametrize("strategy", ["horizon", "paper"])
def test_two_processes_train_one_model_with_one_schedule(tmp_path, strategy):
    callbacks = [AutoLRSCallback(STEPS, **SMALL[strategy]), Report(tmp_path)]
    options = {"devices": 2, "strategy": "ddp_fork", "accumulate_grad_batches": 2, "gradient_clip_val": 0.5}
    fit(seeded(Plain), callbacks, **options)
    first, second = (torch.load(tmp_path / f"rank{rank}.pt") for rank in range(2))
    assert first["ranks"] == 2
    assert first["steps"] == STEPS < first["raw"]
    assert_same(first, second)
    lr_at = autolrs.Schedule.from_json(first["schedule"]).lr_at
    assert first["lrs"] == [lr_at(step) for step in range(STEPS)]


class Dropping(Plain):
    """With batch normalisation, dropout and its own noisy data."""

    def __init__(self, kind):
        super().__init__()
        self.net, self.kind = Net().net, kind

    def train_dataloader(self):
        data = loader().dataset
        if self.kind is DataLoader:
            return DataLoader(data, 8, shuffle=True)
        return StatefulDataLoader(data, 8, sampler=DistributedSampler(data))  # Lightning's own would have no state


class OwnRandomness(Callback):
    """Gives each rank random numbers of its own before anything is loaded or drawn."""

    def __init__(self, seed):
        self.seed = seed

    def setup(self, trainer, module, stage):
        torch.manual_seed(self.seed + trainer.global_rank)


@pytest.mark.distributed
@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.parametrize("kind", [StatefulDataLoader, DataLoader])
@pytest.mark.parametrize("strategy", ["horizon", "paper"])
def test_two_processes_go_on_from_lightnings_checkpoint_to_the_bit(tmp_path, strategy, kind):
    def run(seed, ckpt_path=None):
        # Ordinary loaders can only go on between epochs; here of three batches on each rank.
        how = (
            {"save_on_train_epoch_end": True, "every_n_epochs": 6}
            if kind is DataLoader
            else {"every_n_train_steps": 20}
        )
        saver = ModelCheckpoint(tmp_path, "{step}", save_top_k=-1, **how)
        callback = AutoLRSCallback(STEPS, **SMALL[strategy])
        trainer = lightning.Trainer(
            accelerator="cpu",
            devices=2,
            strategy="ddp_fork",
            callbacks=[callback, OwnRandomness(seed), saver, Report(tmp_path)],
            logger=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            max_epochs=-1,
        )
        validation = loader(rows=16, shuffle=False)
        trainer.fit(seeded(lambda: Dropping(kind), seed), val_dataloaders=validation, ckpt_path=ckpt_path)
        return [torch.load(tmp_path / f"rank{rank}.pt") for rank in range(2)]

    whole = run(0)
    point = min(tmp_path.glob("*.ckpt"))
    assert 15 <= torch.load(point, weights_only=True)["global_step"] < STEPS
    for here, there in zip(run(7, point), whole, strict=True):
        here["lrs"] = [*there["lrs"][: -len(here["lrs"])], *here["lrs"]]
        assert_same(here, there)


def test_a_rank_that_saves_after_an_error_does_not_wait_for_the_others(monkeypatch):
    class Gone:
        rank, size = 0, 2

        def exchange(self, value, where):
            raise LostRankError(where)

    callback = AutoLRSCallback(4, max_cost=1.0)
    trainer = fit(seeded(Plain), [callback])
    monkeypatch.setattr(callback.auto, "comm", Gone())
    with pytest.raises(LostRankError, match="every rank must call"):
        callback.state_dict()
    callback.on_exception(trainer, trainer.lightning_module, KeyboardInterrupt())
    assert callback.state_dict()["ranks"] == 1  # so that other ranks do not take these random numbers for theirs
