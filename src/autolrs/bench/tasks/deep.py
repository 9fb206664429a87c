"""Deep networks with norms on CIFAR-10 at 16x16, by SGD: what a miniature run learns of them is little or nothing.

On the first seven it was looked at what SGD usually wants of such networks (docs/research-log.md, "What is usual of
SGD"); the others check it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.optim import SGD

from autolrs.bench.tasks._attention import Block
from autolrs.bench.tasks.ordinary import job, momentum, nesterov

Norm = Callable[[int], nn.Module]
PATCH, PATCHES, WIDTH = 4, 16, 48
POOLED = "pool"
SHALLOW = (12, 12, POOLED, 24, 24, POOLED, 32, 32, 32, POOLED, 48, 48, 48)
DEEPER = (8, 8, 8, 8, POOLED, 16, 16, 16, 16, POOLED, 24, 24, 24, 24, POOLED, 32, 32, 32, 32)

group_norm = partial(nn.GroupNorm, 4)
no_momentum = partial(SGD, momentum=0.0, weight_decay=5e-4)
much_momentum = partial(SGD, momentum=0.95)


def _head(width: int) -> list[nn.Module]:
    return [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 10)]


def vgg(norm: Norm, plan: Sequence[int | str] = SHALLOW) -> nn.Module:
    """Convolutions one after another, each with a norm."""
    layers: list[nn.Module] = []
    width = 3
    for step in plan:
        if isinstance(step, str):
            layers.append(nn.MaxPool2d(2))
        else:
            layers += [nn.Conv2d(width, step, 3, padding=1, bias=False), norm(step), nn.ReLU()]
            width = step
    return nn.Sequential(*layers, *_head(width))


class Grown(nn.Module):
    """Eight more channels, from all that there are."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.inner = nn.Sequential(
            nn.BatchNorm2d(width), nn.ReLU(), nn.Conv2d(width, 8, 3, padding=1, bias=False)
        )  # fmt: skip

    def forward(self, images: Tensor) -> Tensor:
        return torch.cat([images, self.inner(images)], 1)


def dense_net() -> nn.Module:
    layers: list[nn.Module] = [nn.Conv2d(3, 16, 3, padding=1, bias=False)]
    width = 16
    for part in range(3):
        for _ in range(4):
            layers.append(Grown(width))
            width += 8
        if part < 2:
            layers += [nn.BatchNorm2d(width), nn.ReLU(), nn.Conv2d(width, width // 2, 1, bias=False), nn.AvgPool2d(2)]
            width //= 2
    return nn.Sequential(*layers, nn.BatchNorm2d(width), nn.ReLU(), *_head(width))


class Residual(nn.Module):
    """Norm, ReLU and convolution, twice, and what came in added (He et al. 2016b)."""

    def __init__(self, inside: int, outside: int, stride: int, norm: Norm) -> None:
        super().__init__()
        self.inner = nn.Sequential(
            norm(inside), nn.ReLU(), nn.Conv2d(inside, outside, 3, stride, 1, bias=False),
            norm(outside), nn.ReLU(), nn.Conv2d(outside, outside, 3, 1, 1, bias=False),
        )  # fmt: skip
        same = inside == outside and stride == 1
        self.beside: nn.Module = nn.Identity() if same else nn.Conv2d(inside, outside, 1, stride, bias=False)

    def forward(self, images: Tensor) -> Tensor:
        out: Tensor = self.beside(images) + self.inner(images)
        return out


def residual_net(norm: Norm) -> nn.Module:
    widths = (16, 16, 16, 32, 32, 64, 64)
    blocks = [Residual(a, b, 1 if a == b else 2, norm) for a, b in pairwise(widths)]
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, 1, 1, bias=False), *blocks, norm(widths[-1]), nn.ReLU(), *_head(widths[-1])
    )  # fmt: skip


def separable_net() -> nn.Module:
    """Convolutions of single channels, then of single pixels (MobileNet)."""
    layers: list[nn.Module] = [nn.Conv2d(3, 24, 3, 1, 1, bias=False), nn.BatchNorm2d(24), nn.ReLU()]
    for inside, outside, stride in ((24, 24, 1), (24, 48, 2), (48, 48, 1), (48, 64, 2), (64, 64, 1), (64, 96, 2)):
        layers += [nn.Conv2d(inside, inside, 3, stride, 1, groups=inside, bias=False), nn.BatchNorm2d(inside)]
        layers += [nn.ReLU(), nn.Conv2d(inside, outside, 1, bias=False), nn.BatchNorm2d(outside), nn.ReLU()]
    return nn.Sequential(*layers, *_head(96))


class Patches(nn.Module):
    """Sixteen patches of a picture, through blocks, to the mean over them."""

    def __init__(self, *blocks: nn.Module, norm: bool = True) -> None:
        super().__init__()
        self.embed, self.place = nn.Conv2d(3, WIDTH, PATCH, PATCH), nn.Parameter(0.02 * torch.randn(PATCHES, WIDTH))
        self.blocks = nn.Sequential(*blocks, *([nn.LayerNorm(WIDTH)] if norm else []))
        self.out = nn.Linear(WIDTH, 10)

    def forward(self, images: Tensor) -> Tensor:
        tokens = self.embed(images).flatten(2).transpose(1, 2) + self.place
        logits: Tensor = self.out(self.blocks(tokens).mean(1))
        return logits


class Mixed(nn.Module):
    """Perceptrons over patches and over channels in turn (MLP-Mixer)."""

    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList([nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)])
        self.patches = nn.Sequential(nn.Linear(PATCHES, 32), nn.GELU(), nn.Linear(32, PATCHES))
        self.channels = nn.Sequential(nn.Linear(WIDTH, 2 * WIDTH), nn.GELU(), nn.Linear(2 * WIDTH, WIDTH))

    def forward(self, tokens: Tensor) -> Tensor:
        tokens = tokens + self.patches(self.norms[0](tokens).transpose(1, 2)).transpose(1, 2)
        out: Tensor = tokens + self.channels(self.norms[1](tokens))
        return out


def transformer() -> nn.Module:
    return Patches(*(Block(WIDTH, 4, 2 * WIDTH, causal=False) for _ in range(4)))


def mixer() -> nn.Module:
    return Patches(*(Mixed() for _ in range(4)))


def post_norm_transformer() -> nn.Module:
    """As of 2017: a norm after each sum."""
    blocks = (nn.TransformerEncoderLayer(WIDTH, 4, 2 * WIDTH, 0.0, batch_first=True) for _ in range(3))
    return Patches(*blocks, norm=False)


def deep_perceptron() -> nn.Module:
    layers: list[nn.Module] = [nn.Flatten()]
    for inside, outside in pairwise((768, *(96,) * 8)):
        layers += [nn.Linear(inside, outside), nn.LayerNorm(outside), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(96, 10))


DEEP = (
    job("vgg-groupnorm-sgd", 1500, 32, lambda: vgg(group_norm), nesterov),
    job("preact-groupnorm-sgd", 1500, 32, lambda: residual_net(group_norm), momentum),
    job("transformer-sgd", 2000, 64, transformer, nesterov),
    job("mixer-sgd", 2000, 64, mixer, momentum),
    job("dense-sgd", 1500, 64, dense_net, nesterov),
    job("deep-vgg-sgd", 1500, 64, lambda: vgg(nn.BatchNorm2d, DEEPER), much_momentum),
    job("vgg-plain-sgd", 1500, 64, lambda: vgg(nn.BatchNorm2d), no_momentum),
    job("separable-sgd", 1500, 64, separable_net, nesterov, held_out=True),
    job("preact-plain-sgd", 1500, 64, lambda: residual_net(group_norm), no_momentum, held_out=True),
    job("deeper-groupnorm-sgd", 1500, 64, lambda: vgg(group_norm, DEEPER), much_momentum, held_out=True),
    job("post-norm-sgd", 2000, 64, post_norm_transformer, momentum, held_out=True),
    job("deep-perceptron-sgd", 1500, 64, deep_perceptron, momentum, held_out=True),
)
