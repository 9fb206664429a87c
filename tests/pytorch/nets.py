"""Small networks, loaders and loops that the tests of the PyTorch adapter share."""

import random

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset, TensorDataset

import autolrs

_generator = torch.Generator().manual_seed(0)
X = torch.randn(48, 6, generator=_generator)
Y = (X @ torch.randn(6, 3, generator=_generator)).argmax(1)

# Stages of 20 and 40 steps with three probes of 5 and 10: 105 raw steps for 60 committed ones.
PAPER = {
    "strategy": "paper",
    "lr": (1e-3, 1e-1),
    "total_steps": 60,
    "stage_steps": 20,
    "max_stage_steps": 40,
    "probe_fraction": 0.25,
    "n_probes": 3,
}


def net(seed=0):
    """BatchNorm buffers, dropout (random numbers) and two linear layers."""
    torch.manual_seed(seed)
    np.random.seed(seed)  # noqa: NPY002 - what users' datasets draw from
    random.seed(seed)
    return nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.2), nn.Linear(8, 3))


def shuffled(dataset=None, **options):
    return DataLoader(dataset or TensorDataset(X, Y), **{"batch_size": 8, "shuffle": True, **options})


def make(seed=0, kind=torch.optim.SGD, **options):
    """A model, an optimizer and a shuffling loader of six batches."""
    model = net(seed)
    if kind is torch.optim.SGD:
        options = {"momentum": 0.9, **options}
    return model, kind(model.parameters(), **{"lr": 0.01, **options}), shuffled()


def auto_for(model, optimizer, **settings):
    return autolrs.AutoLRS(model, optimizer, **{**PAPER, **settings})


def loss_of(model, batch):
    return F.cross_entropy(model(batch[0]), batch[1])


def train_step(model, optimizer, batch):
    loss = loss_of(model, batch)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss


def train(auto, model, optimizer, loader, stop=None):
    """The loop of the README, for all of the run or `stop` raw steps."""
    infos = []
    for batch in auto.batches(loader):
        infos.append(auto.step(train_step(model, optimizer, batch)))
        if stop is not None and len(infos) >= stop:
            break
    return infos


def bare(model, optimizer, loader, schedule, modify=None):
    """A plain loop with a found schedule, at 1x the cost."""
    scheduler = schedule.to_torch(optimizer)
    left = schedule.total_steps
    while True:
        for batch in loader:
            if modify is not None:
                modify(batch)
            train_step(model, optimizer, batch)
            scheduler.step()
            left -= 1
            if not left:
                return


def tensors(model):
    return [t.detach().clone() for t in (*model.parameters(), *model.buffers())]


def same(a, b):
    return len(a) == len(b) and all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


class Augmented(Dataset):
    """Draws from all three global random states for each sample: normal numbers, which are made in pairs."""

    def __len__(self):
        return len(X)

    def __getitem__(self, i):
        noise = torch.randn(()).item() + np.random.randn() + random.gauss(0, 1)  # noqa: NPY002 - see the docstring
        return X[i] + 0.01 * noise, Y[i]
