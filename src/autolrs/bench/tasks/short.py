"""Runs of 250 to 1000 steps of small networks, on data that ship with scikit-learn or are made by a formula.

What people try a library on: there is money for two to six miniature runs of 20 steps and no more. On the first nine
the share of what is usual was chosen (docs/research-log.md, "Short runs"); the others were written after that, and the
last five, all with SGD, after its rule was made ("SGD in short runs").
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.optim import SGD, Adam, AdamW, NAdam, Optimizer

from autolrs.bench.tasks import data
from autolrs.bench.tasks._task import Bundle, Task, supervised
from autolrs.bench.tasks.data import Split
from autolrs.bench.tasks.tables import perceptron

ADAM_LRS, SGD_LRS = (1e-4, 1e-1), (1e-3, 1.0)


class ReadByRows(nn.Module):
    """A recurrent net that reads a digit row by row."""

    def __init__(self, cell: nn.RNNBase, pool: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.cell, self.pool, self.out = cell, pool, nn.Linear(cell.hidden_size, 10)

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.out(self.pool(self.cell(images.flatten(1, 2))[0]))
        return logits


class LastState(nn.Module):
    """Numbers that a recurrent net says of a sequence when it has read it."""

    def __init__(self, cell: nn.RNNBase, outputs: int) -> None:
        super().__init__()
        self.cell, self.out = cell, nn.Linear(cell.hidden_size, outputs)

    def forward(self, sequences: Tensor) -> Tensor:
        said: Tensor = self.out(self.cell(sequences)[0][:, -1])
        return said


class Patches(nn.Module):
    """A transformer over the sixteen patches of a digit."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        block = nn.TransformerEncoderLayer(width, 4, 2 * width, 0.0, batch_first=True, norm_first=True)
        self.embed, self.place = nn.Linear(4, width), nn.Parameter(0.02 * torch.randn(16, width))
        self.blocks, self.out = nn.TransformerEncoder(block, 2, enable_nested_tensor=False), nn.Linear(width, 10)

    def forward(self, images: Tensor) -> Tensor:
        patches = functional.unfold(images, 2, stride=2).transpose(1, 2)
        logits: Tensor = self.out(self.blocks(self.embed(patches) + self.place).mean(1))
        return logits


def gru() -> nn.Module:
    return ReadByRows(nn.GRU(8, 48, batch_first=True), lambda states: states[:, -1])


def lstm() -> nn.Module:
    return ReadByRows(nn.LSTM(8, 32, 2, batch_first=True), lambda states: states.mean(1))


def convolution_net() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(256, 64), nn.ReLU(), nn.Linear(64, 10),
    )  # fmt: skip


def normalised_net() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.AdaptiveAvgPool2d(1),
        nn.Flatten(), nn.Linear(32, 10),
    )  # fmt: skip


class Residual(nn.Module):
    """A layer whose input is added to what it makes of it."""

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.inner = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        total: Tensor = x + self.inner(x)
        return total


def residual_net() -> nn.Module:
    def block() -> nn.Module:
        return Residual(nn.Conv2d(16, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 16, 3, padding=1))

    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), block(), nn.MaxPool2d(2), block(), nn.AdaptiveAvgPool2d(2),
        nn.Flatten(), nn.Linear(64, 10),
    )  # fmt: skip


def normalised_perceptron() -> nn.Module:
    return nn.Sequential(
        nn.Linear(30, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 64), nn.BatchNorm1d(64), nn.ReLU(),
        nn.Linear(64, 5),
    )  # fmt: skip


def wide_net() -> nn.Module:
    return nn.Sequential(
        nn.Flatten(), nn.Linear(64, 512), nn.GELU(), nn.LayerNorm(512), nn.Linear(512, 512), nn.GELU(),
        nn.Linear(512, 10),
    )  # fmt: skip


@lru_cache
def taught() -> Split:
    """What a random network says about random numbers, with a little noise."""
    source = torch.Generator().manual_seed(5)
    inputs, first = (torch.randn(*shape, generator=source) for shape in ((8000, 20), (20, 32)))
    last, noise = (torch.randn(*shape, generator=source) for shape in ((32, 1), (8000, 1)))
    return shuffled(inputs, torch.tanh(2 * inputs @ first / 20**0.5) @ last / 32**0.5 + 0.05 * noise)


@lru_cache
def formula() -> Split:
    source = torch.Generator().manual_seed(9)
    x = 2 * torch.rand(6000, 6, generator=source) - 1
    a, b, c, d, e, _ = x.split(1, 1)
    noise = 0.1 * torch.randn(6000, 1, generator=source)
    return shuffled(x, torch.sin(3 * a) * b + c**2 - torch.exp(-d * e) + noise)


@lru_cache
def clusters() -> Split:
    data.find_scikit_learn()
    from sklearn.datasets import make_classification

    x, y = make_classification(6000, 30, n_informative=12, n_classes=5, n_clusters_per_class=2, random_state=3)
    return shuffled(torch.tensor(x, dtype=torch.float32), torch.tensor(y))


@lru_cache
def copied_digits() -> Split:
    return Split(*((images, images.flatten(1)) for images, _ in data.digits()))


def shuffled(inputs: Tensor, targets: Tensor) -> Split:
    """Three parts, in an order of their own."""
    order = torch.randperm(len(targets), generator=torch.Generator().manual_seed(1))
    return data.three_parts(inputs[order], targets[order])


def adam(net: nn.Module) -> Optimizer:
    return Adam(net.parameters(), lr=1e-3)


def adamw(net: nn.Module) -> Optimizer:
    return AdamW(net.parameters(), lr=1e-3, weight_decay=0.01)


def nadam(net: nn.Module) -> Optimizer:
    return NAdam(net.parameters(), lr=1e-3)


def plain_sgd(net: nn.Module) -> Optimizer:
    return SGD(net.parameters(), lr=0.1)


def momentum_sgd(net: nn.Module) -> Optimizer:
    return SGD(net.parameters(), lr=0.1, momentum=0.9)


def nesterov_sgd(net: nn.Module) -> Optimizer:
    return SGD(net.parameters(), lr=0.1, momentum=0.9, nesterov=True, weight_decay=5e-4)


MADE_BY_FORMULA: set[Callable[[], Split]] = {taught, formula}  # the others ship with scikit-learn


def small_task(
    name: str,
    steps: int,
    split: Callable[[], Split],
    batch: int,
    model: Callable[[], nn.Module],
    optimizer: Callable[[nn.Module], Optimizer],
    measure: Callable[..., Tensor] | None = None,
    clip: float | None = None,
    *,
    held_out: bool = False,
) -> Task:
    """A task on data that every machine has; its loss is `measure(net, *batch)`, if it is not the usual one."""

    def build(seed: int) -> Bundle:
        return supervised(split(), seed, batch, model, optimizer, measure, clip)

    def find_data() -> None:
        if split not in MADE_BY_FORMULA:
            data.find_scikit_learn()

    lrs = SGD_LRS if optimizer in (plain_sgd, momentum_sgd, nesterov_sgd) else ADAM_LRS
    return Task(name, steps, lrs, build, held_out=held_out, find_data=find_data)


SHORT = (
    small_task("short-mlp-adamw", 300, data.digits, 64, lambda: perceptron(64, 10, 128), adamw),
    small_task("short-cnn-adam", 500, data.digits, 32, convolution_net, adam),
    small_task("short-gru-adam", 600, data.digits, 32, gru, adam),
    small_task("short-vit-adamw", 600, data.digits, 64, Patches, adamw),
    small_task("short-autoencoder-adam", 600, copied_digits, 32, lambda: perceptron(64, 64, 48), adam),
    small_task("short-taught-adam", 600, taught, 64, lambda: perceptron(20, 1, 64), adam),
    small_task("short-mlp-sgd", 800, data.digits, 32, lambda: perceptron(64, 10, 128), plain_sgd),
    small_task("short-taught-sgd", 1000, taught, 32, lambda: perceptron(20, 1, 64, nn.Tanh), nesterov_sgd),
    small_task("short-batchnorm-sgd", 1000, data.digits, 64, normalised_net, nesterov_sgd),
    small_task("short-clusters-adamw", 400, clusters, 32, lambda: perceptron(30, 5, 96), adamw, held_out=True),
    small_task("short-clusters-nadam", 600, clusters, 64, lambda: perceptron(30, 5, 48, nn.Tanh), nadam, held_out=True),
    small_task("short-clusters-sgd", 800, clusters, 32, lambda: perceptron(30, 5, 96), momentum_sgd, held_out=True),
    small_task("short-formula-adam", 800, formula, 64, lambda: perceptron(6, 1, 80, nn.SiLU), adam, held_out=True),
    small_task("short-lstm-adam", 700, data.digits, 64, lstm, adam, held_out=True),
    small_task("short-wide-adamw", 250, data.digits, 32, wide_net, adamw, held_out=True),
    small_task("short-wide-longer-adamw", 600, data.digits, 32, wide_net, adamw, held_out=True),
    small_task(
        "short-formula-sgd", 700, formula, 32, lambda: perceptron(6, 1, 80, nn.SiLU), momentum_sgd, held_out=True
    ),
    small_task("short-lstm-sgd", 1000, data.digits, 32, lstm, momentum_sgd, held_out=True),
    small_task("short-clusters-norm-sgd", 500, clusters, 64, normalised_perceptron, nesterov_sgd, held_out=True),
    small_task("short-vit-sgd", 1000, data.digits, 32, Patches, nesterov_sgd, held_out=True),
    small_task("short-residual-sgd", 800, data.digits, 32, residual_net, plain_sgd, held_out=True),
)
