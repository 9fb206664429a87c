"""Ordinary jobs: small networks on CIFAR-10 at 16x16 for one to three epochs, most of them by SGD.

After 2 % of such a run next to nothing is learned, but which LR does better can be seen. On the first five it was
chosen what SGD does then (docs/research-log.md, "Ordinary jobs"); the others check it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.optim import SGD, Adam, AdamW, Optimizer

from autolrs.bench.tasks import _pictures
from autolrs.bench.tasks._task import Bundle, Task, supervised
from autolrs.bench.tasks.data import Split

WIDTHS = (3, 16, 32, 64)
SGD_LRS, ADAM_LRS = (1e-3, 1.0), (1e-4, 1e-1)


@lru_cache(maxsize=1)
def pictures() -> Split:
    """CIFAR-10 averaged down to 16x16; a thousand images to validate on, half of the test images to test."""

    def small(part: tuple[Tensor, ...], most: int | None = None) -> tuple[Tensor, ...]:
        return functional.avg_pool2d(part[0][:most], 2), part[1][:most]

    split = _pictures.cifar10()
    return Split(small(split.train), small(split.validation, 1000), small(split.test, 5000))


def convolutions(norm: Callable[[int], nn.Module] | None, activation: type[nn.Module] = nn.ReLU) -> nn.Module:
    """Three convolutions, each halved by its largest; with a norm, or none."""
    layers: list[nn.Module] = []
    for inside, outside in pairwise(WIDTHS):
        layers.append(nn.Conv2d(inside, outside, 3, padding=1, bias=norm is None))
        layers += [*([] if norm is None else [norm(outside)]), activation(), nn.MaxPool2d(2)]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(4 * WIDTHS[-1], 10))


class Residual(nn.Module):
    """Two convolutions with BatchNorm, and what came in added."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.inner = nn.Sequential(
            nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU(),
            nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width),
        )  # fmt: skip

    def forward(self, images: Tensor) -> Tensor:
        return torch.relu(images + self.inner(images))


def residual_net() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 24, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(24), nn.ReLU(), Residual(24),
        nn.Conv2d(24, 48, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(48), nn.ReLU(), Residual(48),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(48, 10),
    )  # fmt: skip


def perceptron() -> nn.Module:
    return nn.Sequential(
        nn.Flatten(), nn.Linear(768, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 10)
    )


def job(
    name: str,
    steps: int,
    batch: int,
    model: Callable[[], nn.Module],
    optimizer: Callable[..., Optimizer],
    *,
    held_out: bool = False,
) -> Task:
    """A task; the optimizer's own LR is a placeholder."""

    def build(seed: int) -> Bundle:
        return supervised(pictures(), seed, batch, model, lambda net: optimizer(net.parameters(), lr=1e-3))

    lrs = SGD_LRS if name.endswith("sgd") else ADAM_LRS
    return Task(f"cifar-{name}", steps, lrs, build, held_out=held_out, find_data=_pictures.find_cifar10)


momentum = partial(SGD, momentum=0.9, weight_decay=5e-4)
nesterov = partial(momentum, nesterov=True)

ORDINARY = (
    job("plain-sgd", 2000, 32, lambda: convolutions(None), momentum),
    job("batchnorm-sgd", 2000, 64, lambda: convolutions(nn.BatchNorm2d), momentum),
    job("residual-sgd", 1500, 64, residual_net, nesterov),
    job("mlp-sgd", 2000, 64, perceptron, partial(SGD, momentum=0.9)),
    job("groupnorm-sgd", 2500, 32, lambda: convolutions(partial(nn.GroupNorm, 4)), nesterov),
    job("tanh-sgd", 1500, 128, lambda: convolutions(None, nn.Tanh), momentum, held_out=True),
    job("batchnorm-adamw", 1500, 64, lambda: convolutions(nn.BatchNorm2d), AdamW, held_out=True),
    job("mlp-adam", 2000, 64, perceptron, Adam, held_out=True),
)
