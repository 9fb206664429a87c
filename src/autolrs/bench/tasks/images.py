"""Image classifiers: the perceptron, convolution net and vision transformer on Fashion-MNIST at 14x14.

Three optimizers and three levels of normalisation, so that a rule tuned on one kind shows itself on the others.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from autolrs.bench.tasks import data
from autolrs.bench.tasks._attention import Block
from autolrs.bench.tasks._task import Bundle, Task, supervised


def perceptron() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(196, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 10))


def convolution_net() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 12, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(12), nn.ReLU(),
        nn.Conv2d(12, 24, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(24), nn.ReLU(),
        nn.Flatten(), nn.Linear(24 * 16, 10),
    )  # fmt: skip


class VisionTransformer(nn.Module):
    """Two pre-norm blocks over 5x5 overlapping patches and a mean; small, and in need of warm-up as large ones are."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.patches = nn.Conv2d(1, width, 4, stride=3, padding=1)
        self.position = nn.Parameter(0.02 * torch.randn(25, width))
        self.blocks = nn.Sequential(*(Block(width, 4, 2 * width, causal=False) for _ in range(2)))
        self.head = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 10))

    def forward(self, images: Tensor) -> Tensor:
        tokens = self.patches(images).flatten(2).transpose(1, 2) + self.position
        logits: Tensor = self.head(self.blocks(tokens).mean(dim=1))
        return logits


def build_mlp(seed: int) -> Bundle:
    return supervised(
        data.fashion_mnist(), seed, 32, perceptron, lambda net: torch.optim.Adam(net.parameters(), lr=1e-3, fused=True)
    )


def build_cnn(seed: int) -> Bundle:
    return supervised(
        data.fashion_mnist(), seed, 32, convolution_net,
        lambda net: torch.optim.SGD(net.parameters(), lr=1e-2, momentum=0.9),
    )  # fmt: skip


def build_vit(seed: int) -> Bundle:
    return supervised(
        data.fashion_mnist(), seed, 32, VisionTransformer,
        lambda net: torch.optim.AdamW(net.parameters(), lr=1e-3, fused=True, weight_decay=0.05),
    )  # fmt: skip


MLP = Task("fashion-mlp", 4000, (1e-4, 1e-1), build_mlp, find_data=data.find_fashion_mnist)
CNN = Task("fashion-cnn", 3000, (1e-3, 1.0), build_cnn, find_data=data.find_fashion_mnist)
VIT = Task("fashion-vit", 1500, (1e-4, 1e-1), build_vit, held_out=True, find_data=data.find_fashion_mnist)
