"""What the tests of the Lightning adapter share: small modules, their data, a Trainer that says nothing."""

from __future__ import annotations

import lightning
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torchmetrics import MeanMetric

QUIET = [
    # Lightning's own use of a part of torch that is going away.
    pytest.mark.filterwarnings("ignore:.isinstance.treespec, LeafSpec.. is deprecated:FutureWarning:lightning"),
    # torchdata's use of one.
    pytest.mark.filterwarnings("ignore:'set_vital' is deprecated:UserWarning"),
    # Advice for large machines and long trainings.
    pytest.mark.filterwarnings("ignore:The '.*_dataloader' does not have many workers::lightning"),
    pytest.mark.filterwarnings("ignore:The number of training batches::lightning"),
    pytest.mark.filterwarnings("ignore:You defined a .validation_step. but have no .val_dataloader::lightning"),
    pytest.mark.filterwarnings("ignore:You are using the .dataloader_iter. step flavor::lightning"),
    pytest.mark.filterwarnings("ignore:Checkpoint directory .* exists and is not empty::lightning"),
    pytest.mark.filterwarnings("ignore:.*there is no last checkpoint available::lightning"),
    pytest.mark.filterwarnings("ignore:Be aware that when using .ckpt_path.::lightning"),
    pytest.mark.filterwarnings("ignore:.training_step. returned .None.::lightning"),
    pytest.mark.filterwarnings("ignore:You're resuming from a checkpoint that ended before the epoch::lightning"),
]

SMALL = {
    "horizon": {"strategy": "horizon", "max_cost": 3.2},
    "paper": {
        "strategy": "paper",
        "lr": (1e-3, 0.3),
        "stage_steps": 16,
        "max_stage_steps": 32,
        "probe_fraction": 0.25,
        "n_probes": 3,
        "eval_every": 4,
    },
}
STEPS = 32


class Noisy(TensorDataset):
    """Data that draw random numbers when they are fetched, as augmentations do."""

    def __getitem__(self, index):
        x, y = super().__getitem__(index)
        return x + 0.01 * torch.randn_like(x), y


def loader(kind=DataLoader, batch_size=8, rows=44, **options):
    x = torch.randn(rows, 4, generator=torch.Generator().manual_seed(3))
    data = Noisy(x, x.sum(1, keepdim=True) + 0.1 * x[:, :1] ** 2)
    return kind(data, batch_size, **{"shuffle": True, **options})


class Net(lightning.LightningModule):
    """All that a probe could disturb: BatchNorm, dropout, metrics, lists of outputs, counters, logs of all kinds."""

    def __init__(self, schedule=None):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.2), nn.Linear(8, 1))
        self.mean, self.outputs, self.batches, self.schedule = MeanMetric(), [], 0, schedule

    def loss(self, batch):
        return nn.functional.mse_loss(self.net(batch[0]), batch[1])

    def training_step(self, batch, batch_idx):
        loss = self.loss(batch)
        self.batches += 1
        self.outputs.append(loss.detach())
        self.mean(loss)
        self.log("train_loss", loss, on_step=True, on_epoch=True)
        self.log("mean", self.mean, on_step=False, on_epoch=True)
        if self.logger is not None:
            self.logger.log_metrics({"direct": float(loss.detach())}, step=self.global_step)
        return {"loss": loss, "batches": self.batches}

    def on_train_epoch_end(self):
        if self.outputs:
            self.log("gathered", torch.stack(self.outputs).mean())
        self.outputs.clear()

    def validation_step(self, batch, batch_idx):
        self.log("val_loss", self.loss(batch))

    def configure_optimizers(self):
        body = {"params": self.net[:2].parameters(), "lr": 0.02}
        optimizer = torch.optim.Adam([body, {"params": self.net[4].parameters(), "lr": 0.01}])
        if self.schedule is None:
            return optimizer
        scheduler = {"scheduler": self.schedule.to_torch(optimizer), "interval": "step"}
        return {"optimizer": optimizer, "lr_scheduler": scheduler}


def fit(module, callbacks=(), data=None, ckpt_path=None, val=True, **options):
    options = {"max_epochs": -1, "logger": False, "enable_checkpointing": False, "log_every_n_steps": 1, **options}
    trainer = lightning.Trainer(
        accelerator="cpu",
        callbacks=list(callbacks),
        enable_progress_bar=False,
        enable_model_summary=False,
        **options,
    )
    validation = loader(rows=16, shuffle=False) if val else None
    trainer.fit(module, loader() if data is None else data, validation, ckpt_path=ckpt_path)
    return trainer


def seeded(make, seed=0):
    torch.manual_seed(seed)
    return make()


def differences(a, b, where=""):
    """Where two nested values differ, to the bit; a NaN equals a NaN."""
    if type(a) is not type(b):
        yield f"{where}: {a!r} and {b!r}"
    elif isinstance(a, dict):
        yield from (f"{where}: only one has {key!r}" for key in a.keys() ^ b.keys())
        for key in a.keys() & b.keys():
            yield from differences(a[key], b[key], f"{where}/{key}")
    elif isinstance(a, (list, tuple)):
        if len(a) != len(b):
            yield f"{where}: {len(a)} and {len(b)} items"
        for i, (x, y) in enumerate(zip(a, b, strict=False)):
            yield from differences(x, y, f"{where}/{i}")
    elif isinstance(a, torch.Tensor):
        if a.shape != b.shape or not torch.equal(a.nan_to_num(), b.nan_to_num()):
            yield f"{where}: {a} and {b}"
    elif a != b and not (a != a and b != b):
        yield f"{where}: {a!r} and {b!r}"


def assert_same(a, b):
    found = list(differences(a, b))
    assert not found, "\n".join([f"{len(found)} differences", *found[:10]])


class Plain(lightning.LightningModule):
    """A linear regression, and what its training saw."""

    def __init__(self):
        super().__init__()
        self.net, self.seen = nn.Linear(4, 1), []
        vars(self)["saw"] = Seen()

    def training_step(self, batch, batch_idx):
        self.saw.append(batch[0][:, 0].tolist())
        return nn.functional.mse_loss(self.net(batch[0]), batch[1])

    def validation_step(self, batch, batch_idx):
        return nn.functional.mse_loss(self.net(batch[0]), batch[1])

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)


class Seen(list):
    """Not a plain list, which would be put back after probes."""
