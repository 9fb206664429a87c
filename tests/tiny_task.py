"""A benchmark task that a whole run of takes milliseconds: linear regression, known to no list of tasks."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from autolrs.bench.tasks._task import Batches, Bundle, Task, mean_loss, seeded

STEPS = 48


def build(
    seed: int,
    *,
    optimizer: Callable[[nn.Module], torch.optim.Optimizer] = lambda net: torch.optim.SGD(net.parameters(), lr=0.1),
    model: Callable[[], nn.Module] = lambda: nn.Linear(4, 1),
    scale: float = 1.0,
) -> Bundle:
    """256 examples of a line in four dimensions with noise; `scale` multiplies the loss."""
    generator = torch.Generator().manual_seed(7)
    inputs = torch.randn(256, 4, generator=generator)
    targets = inputs @ torch.tensor([1.0, -2.0, 0.5, 3.0]) + 0.1 * torch.randn(256, generator=generator)
    with seeded(seed):
        net = model()

    def loss(batch: tuple[Tensor, Tensor]) -> Tensor:
        return scale * nn.functional.mse_loss(net(batch[0])[:, 0], batch[1])

    return Bundle(
        model=net,
        optimizer=optimizer(net),
        loader=Batches((inputs[:128], targets[:128]), 16, seed),
        loss=loss,
        evaluate=mean_loss(net, loss, (inputs[128:192], targets[128:192])),
        test=mean_loss(net, loss, (inputs[192:], targets[192:])),
        validation=(inputs[128:192], targets[128:192]),
    )


def adam(seed: int) -> Bundle:
    return build(seed, optimizer=lambda net: torch.optim.AdamW(net.parameters(), lr=1e-2))


def batch_norm(seed: int) -> Bundle:
    return build(seed, model=lambda: nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, 1)))


def explosive(seed: int) -> Bundle:
    """No learning rate is small enough."""
    return build(seed, scale=math.inf)


TINY = Task("tiny", STEPS, (1e-2, 1.0), build)
EXPLOSIVE = Task("explosive", STEPS, (1e-2, 1.0), explosive)
