"""A deep autoencoder on Fashion-MNIST: squared error instead of cross-entropy, so losses live on another scale.

Badly conditioned and low in gradient noise: the best learning rate moves little with the length of the run.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from autolrs.bench.tasks import data
from autolrs.bench.tasks._task import Batches, Bundle, Task, mean_loss, seeded


def autoencoder() -> nn.Module:
    return nn.Sequential(
        nn.Flatten(), nn.Linear(196, 96), nn.Tanh(), nn.Linear(96, 12),
        nn.Linear(12, 96), nn.Tanh(), nn.Linear(96, 196),
    )  # fmt: skip


def build(seed: int) -> Bundle:
    split = data.fashion_mnist()
    with seeded(seed):
        net = autoencoder()

    def loss(batch: tuple[Tensor, ...]) -> Tensor:
        return functional.mse_loss(net(batch[0]), batch[0].flatten(1))

    return Bundle(
        model=net,
        optimizer=torch.optim.Adam(net.parameters(), lr=1e-3, fused=True),
        loader=Batches(split.train[:1], 128, seed),
        loss=loss,
        evaluate=mean_loss(net, loss, split.validation[:1]),
        test=mean_loss(net, loss, split.test[:1]),
        validation=split.validation[:1],
    )


AUTOENCODER = Task("fashion-autoencoder", 3000, (1e-4, 1e-1), build, find_data=data.find_fashion_mnist)
