"""Small networks by SGD for 300 to 2500 steps, on data that ship with scikit-learn or are made by a formula.

The first thing that many people try. Where the slow ramp of SGD puts the peak was chosen on the first nineteen
(docs/research-log.md, "The slow ramp"); the others were written after that, and check it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

import torch
from torch import Tensor, nn

from autolrs.bench.tasks import data
from autolrs.bench.tasks.data import Split
from autolrs.bench.tasks.short import (
    MADE_BY_FORMULA,
    LastState,
    convolution_net,
    copied_digits,
    gru,
    momentum_sgd,
    nesterov_sgd,
    plain_sgd,
    shuffled,
    small_task,
    taught,
)
from autolrs.bench.tasks.tables import perceptron


def by_formula(make: Callable[[], Split]) -> Callable[[], Split]:
    cached = lru_cache(make)
    MADE_BY_FORMULA.add(cached)
    return cached


def random(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def noisy(values: Tensor, deviation: float, source: torch.Generator) -> Tensor:
    return values + deviation * torch.randn(values.shape, generator=source)


def standard(values: Tensor) -> Tensor:
    return (values - values.mean(0)) / values.std(0)


@by_formula
def waves() -> Split:
    source = random(11)
    a, b, c = (x := 2 * torch.rand(5000, 3, generator=source) - 1).split(1, 1)
    return shuffled(x, noisy(torch.sin(4 * a + b) * torch.cos(3 * c), 0.05, source))


@by_formula
def curve() -> Split:
    source = random(12)
    x = 6 * torch.rand(2000, 1, generator=source) - 3
    return shuffled(x, noisy(torch.sin(2 * x) + 0.1 * x**2, 0.1, source))


@by_formula
def spirals() -> Split:
    """Three arms."""
    source = random(14)
    arm, radius = torch.randint(0, 3, (4000,), generator=source), torch.rand(4000, generator=source)
    angle = noisy(5 * radius + 2.094 * arm, 0.15, source)
    return shuffled(2 * torch.stack([radius * angle.cos(), radius * angle.sin()], 1), arm)


@by_formula
def straight() -> Split:
    """A linear function of forty numbers of very different sizes."""
    source = random(15)
    x = torch.randn(3000, 40, generator=source) * torch.logspace(0, -1, 40)
    return shuffled(x, noisy(x @ torch.randn(40, 1, generator=source), 0.2, source))


@by_formula
def parity() -> Split:
    """Whether the first three of twelve bits are odd in number."""
    bits = torch.randint(0, 2, (4000, 12), generator=random(16)).float()
    return shuffled(2 * bits - 1, (bits[:, :3].sum(1) % 2).long())


@by_formula
def sums() -> Split:
    """Two of the twelve numbers of a sequence are marked: what is their sum?"""
    source = random(17)
    numbers, order = torch.rand(5000, 12, generator=source), torch.rand(5000, 12, generator=source).argsort(1)
    marks = (order < 2).float()
    return shuffled(torch.stack([numbers, marks], 2), (numbers * marks).sum(1, keepdim=True))


@lru_cache
def made(name: str, *, values: bool = False, **arguments: Any) -> Split:
    """What one of scikit-learn's functions makes: labels, or values of deviation 1 and a little noise."""
    data.find_scikit_learn()
    from sklearn import datasets

    x, y = (torch.as_tensor(part) for part in getattr(datasets, f"make_{name}")(**arguments))
    if values:
        return shuffled(standard(x.float()), noisy(standard(y.float()[:, None]), 0.1, random(13)))
    return shuffled(x.float(), (y > 0 if y.is_floating_point() else y).long())


@lru_cache
def _shipped(name: str) -> Split:
    data.find_scikit_learn()
    from sklearn import datasets

    x, y = getattr(datasets, f"load_{name}")(return_X_y=True)
    return shuffled(standard(torch.tensor(x, dtype=torch.float32)), torch.tensor(y))


friedman1, friedman2, friedman3 = (
    partial(made, f"friedman{i}", values=True, n_samples=4000, random_state=4) for i in (1, 2, 3)
)
wine, iris = partial(_shipped, "wine"), partial(_shipped, "iris")
blobs = partial(
    made,
    "classification",
    n_samples=5000,
    n_features=40,
    n_informative=15,
    n_classes=8,
    n_clusters_per_class=1,
    random_state=8,
)
quantiles = partial(made, "gaussian_quantiles", n_samples=5000, n_features=8, n_classes=4, random_state=2)
hastie = partial(made, "hastie_10_2", n_samples=5000, random_state=2)
roll = partial(made, "swiss_roll", values=True, n_samples=4000, random_state=2)


def _deep() -> nn.Module:
    hidden = [layer for _ in range(3) for layer in (nn.Linear(64, 64), nn.SiLU())]
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.SiLU(), *hidden, nn.Linear(64, 10))


def adder() -> nn.Module:
    """One number of a sequence of pairs."""
    return LastState(nn.GRU(2, 32, batch_first=True), 1)


def _two_convolutions() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(512, 10),
    )  # fmt: skip


_check = partial(small_task, held_out=True)

SGD_TASKS = (
    small_task("sgd-waves", 900, waves, 64, lambda: perceptron(3, 1, 64), momentum_sgd),
    small_task("sgd-curve", 600, curve, 32, lambda: perceptron(1, 1, 48, nn.GELU), momentum_sgd),
    small_task("sgd-friedman1", 800, friedman1, 64, lambda: perceptron(10, 1, 64), nesterov_sgd),
    small_task("sgd-friedman2", 800, friedman2, 32, lambda: perceptron(4, 1, 64), momentum_sgd),
    small_task("sgd-spirals", 800, spirals, 32, lambda: perceptron(2, 3, 64, nn.Tanh), momentum_sgd),
    small_task("sgd-spirals-plain", 1000, spirals, 64, lambda: perceptron(2, 3, 64), plain_sgd),
    small_task("sgd-wine", 400, wine, 16, lambda: perceptron(13, 3, 32), plain_sgd),
    small_task("sgd-straight", 500, straight, 32, lambda: nn.Linear(40, 1), plain_sgd),
    small_task("sgd-parity", 800, parity, 32, lambda: perceptron(12, 2, 64), momentum_sgd),
    small_task("sgd-blobs", 600, blobs, 64, lambda: perceptron(40, 8, 64), momentum_sgd),
    small_task("sgd-gru", 900, data.digits, 32, gru, nesterov_sgd),
    small_task("sgd-convolution", 600, data.digits, 32, convolution_net, nesterov_sgd),
    small_task("sgd-autoencoder", 1000, copied_digits, 32, lambda: perceptron(64, 64, 48), momentum_sgd),
    small_task("sgd-digits", 500, data.digits, 32, lambda: perceptron(64, 10, 64), momentum_sgd),
    small_task("sgd-convolution-long", 1500, data.digits, 32, convolution_net, nesterov_sgd),
    small_task("sgd-digits-long", 1250, data.digits, 32, lambda: perceptron(64, 10, 64), momentum_sgd),
    small_task("sgd-autoencoder-long", 2500, copied_digits, 32, lambda: perceptron(64, 64, 48), momentum_sgd),
    small_task("sgd-spirals-long", 2000, spirals, 32, lambda: perceptron(2, 3, 64, nn.Tanh), momentum_sgd),
    small_task("sgd-taught-long", 2500, taught, 32, lambda: perceptron(20, 1, 64, nn.Tanh), nesterov_sgd),
    _check("sgd-iris", 300, iris, 16, lambda: perceptron(4, 3, 16), plain_sgd),
    _check("sgd-hastie", 600, hastie, 32, lambda: perceptron(10, 2, 64, nn.Tanh), nesterov_sgd),
    _check("sgd-quantiles", 700, quantiles, 32, lambda: perceptron(8, 4, 48), momentum_sgd),
    _check("sgd-roll", 800, roll, 64, lambda: perceptron(3, 1, 64, nn.GELU), momentum_sgd),
    _check("sgd-deep", 900, data.digits, 32, _deep, momentum_sgd),
    _check("sgd-sums-long", 1500, sums, 32, adder, momentum_sgd),
    _check("sgd-friedman3-long", 2000, friedman3, 32, lambda: perceptron(4, 1, 64), plain_sgd),
    _check("sgd-convolutions-long", 2000, data.digits, 64, _two_convolutions, nesterov_sgd),
)
