"""Networks with norms by SGD whose first steps learn how often each answer comes, and little else.

Heads with outputs that never occur, as a vocabulary has them, rare classes and backgrounds: the loss falls to what a
constant answer leaves, whatever the LR, and a miniature run is over. On the first eleven it was chosen what SGD
does then (docs/research-log.md, "What a constant answer leaves"); the others check it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.optim import Optimizer

from autolrs.bench.tasks import _pictures, data
from autolrs.bench.tasks._task import Bundle, Task, supervised
from autolrs.bench.tasks.data import Split
from autolrs.bench.tasks.deep import DEEPER, deep_perceptron, group_norm, much_momentum, residual_net, transformer, vgg
from autolrs.bench.tasks.ordinary import SGD_LRS, convolutions, momentum, nesterov, perceptron, pictures
from autolrs.bench.tasks.ordinary import residual_net as batch_norm_residual_net

RARE = 8  # the class that is told from all others: ships


def with_outputs(net: nn.Module, outputs: int) -> nn.Module:
    """The same network with another number of outputs."""
    holder, name = (net, "out") if hasattr(net, "out") else (net, str(len(net) - 1))  # type: ignore[arg-type]
    last = getattr(holder, name)
    setattr(holder, name, nn.Linear(last.in_features, outputs))
    return net


@lru_cache(maxsize=1)
def rare() -> Split:
    """Whether a picture shows a ship: one in ten does."""
    return Split(*((images, (labels == RARE).long()) for images, labels in pictures()))


@lru_cache(maxsize=1)
def skewed() -> Split:
    """Of each class three fifths as many pictures as of the one before."""

    def thinned(images: Tensor, labels: Tensor) -> tuple[Tensor, ...]:
        nth = functional.one_hot(labels, 10).cumsum(0).gather(1, labels[:, None])[:, 0] - 1  # of its class
        kept = (nth + 1) * 0.6 ** labels.double() % 1.0 < 0.6 ** labels.double()
        return images[kept], labels[kept]

    return Split(*(thinned(*part) for part in pictures()))


@lru_cache(maxsize=1)
def inked() -> Split:
    """Fashion-MNIST, where each pixel is background or of the picture's class."""

    def drawn(images: Tensor, labels: Tensor) -> tuple[Tensor, ...]:
        return images, torch.where(images[:, 0] > 0.5, labels[:, None, None] + 1, 0)

    return Split(*(drawn(*part) for part in data.fashion_mnist()))


def segmenter() -> nn.Module:
    """Convolutions that see more and more of the picture, to eleven classes a pixel."""
    layers: list[nn.Module] = []
    for inside, outside, dilation in ((1, 12, 1), (12, 24, 2), (24, 24, 4), (24, 24, 2)):
        layers += [nn.Conv2d(inside, outside, 3, padding=dilation, dilation=dilation, bias=False)]
        layers += [nn.BatchNorm2d(outside), nn.ReLU()]
    return nn.Sequential(*layers, nn.Conv2d(24, 11, 1))


def job(
    name: str,
    steps: int,
    batch: int,
    model: Callable[[], nn.Module],
    optimizer: Callable[..., Optimizer],
    split: Callable[[], Split] = pictures,
    *,
    held_out: bool = False,
    find: Callable[[], object] = _pictures.find_cifar10,
) -> Task:
    """A task; the optimizer's own LR is a placeholder."""

    def build(seed: int) -> Bundle:
        return supervised(split(), seed, batch, model, lambda net: optimizer(net.parameters(), lr=1e-3))

    return Task(f"prior-{name}", steps, SGD_LRS, build, held_out=held_out, find_data=find)


batch_norm = nn.BatchNorm2d
without_decay = partial(momentum, weight_decay=0.0)


def hundred() -> nn.Module:
    return with_outputs(vgg(batch_norm, DEEPER), 100)


def two() -> nn.Module:
    return with_outputs(residual_net(group_norm), 2)


PRIORS = (
    job("hundred-batchnorm", 1500, 64, lambda: with_outputs(convolutions(batch_norm), 100), momentum),
    job("hundred-vgg", 1500, 32, lambda: with_outputs(vgg(batch_norm), 100), nesterov),
    job("thousand-residual", 1200, 64, lambda: with_outputs(batch_norm_residual_net(), 1000), nesterov),
    job("hundred-transformer", 1500, 64, lambda: with_outputs(transformer(), 100), momentum),
    job("rare-groupnorm", 1500, 64, lambda: with_outputs(convolutions(group_norm), 2), momentum, rare),
    job("rare-batchnorm", 1500, 64, lambda: with_outputs(convolutions(batch_norm), 2), momentum, rare),
    job("rare-vgg", 1500, 32, lambda: with_outputs(vgg(group_norm), 2), nesterov, rare),
    job("rare-transformer", 1500, 64, lambda: with_outputs(transformer(), 2), momentum, rare),
    job("rare-plain", 1500, 64, lambda: with_outputs(convolutions(None), 2), momentum, rare),
    job("rare-mlp", 1500, 64, lambda: with_outputs(perceptron(), 2), momentum, rare),
    job("skewed-batchnorm", 1500, 64, lambda: convolutions(batch_norm), momentum, skewed),
    job("hundred-deeper", 1500, 64, hundred, much_momentum, held_out=True),
    job("rare-residual", 1500, 64, two, nesterov, rare, held_out=True),
    job("rare-deep", 1500, 64, lambda: with_outputs(deep_perceptron(), 2), momentum, rare, held_out=True),
    job("ink", 1200, 32, segmenter, without_decay, inked, held_out=True, find=data.find_fashion_mnist),
)
