"""The smallest tasks, on scikit-learn's digits: data that ship with a package, few images, hence soon overfitted.

The perceptron's batches are ordinary; the convolution net's are a quarter of the set: gradients with little noise.
"""

from __future__ import annotations

import torch
from torch import nn

from autolrs.bench.tasks import data
from autolrs.bench.tasks._task import Bundle, Task, supervised


def perceptron() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 10))


def convolution_net() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(64, 10),
    )  # fmt: skip


def build_mlp(seed: int) -> Bundle:
    # Strong weight decay: without it the best LR is the last one before divergence, and every rule looks lucky or dead.
    return supervised(
        data.digits(), seed, 32, perceptron,
        lambda net: torch.optim.SGD(net.parameters(), lr=1e-2, momentum=0.9, weight_decay=2e-3),
    )  # fmt: skip


def build_cnn(seed: int, split: int = 0) -> Bundle:
    return supervised(
        data.digits(split), seed, 256, convolution_net,
        lambda net: torch.optim.AdamW(net.parameters(), lr=1e-3, fused=True, weight_decay=0.1),
    )  # fmt: skip


MLP = Task("digits-mlp", 2000, (1e-3, 1.0), build_mlp, find_data=data.find_scikit_learn)
CNN = Task("digits-cnn", 600, (1e-4, 1e-1), build_cnn, held_out=True, find_data=data.find_scikit_learn)
