"""Tables of numbers that ship with scikit-learn: a convex problem, a soon overfitted one, and two regressions.

Kinds of work on which nothing was ever chosen. Losses of the regressions begin a hundred times above where they end:
the targets are not standardised, so the first thing learned is their mean.
"""

from __future__ import annotations

from torch import nn
from torch.optim import SGD, Adam

from autolrs.bench.tasks import data
from autolrs.bench.tasks._task import Bundle, Task, supervised


def perceptron(inputs: int, outputs: int, width: int = 64, act: type[nn.Module] = nn.ReLU) -> nn.Module:
    return nn.Sequential(
        nn.Flatten(), nn.Linear(inputs, width), act(), nn.Linear(width, width), act(), nn.Linear(width, outputs)
    )


def build_logistic(seed: int) -> Bundle:
    def model() -> nn.Module:
        return nn.Sequential(nn.Flatten(), nn.Linear(64, 10))

    return supervised(data.digits(), seed, 32, model, lambda net: SGD(net.parameters(), lr=0.1))


def build_cancer(seed: int) -> Bundle:
    split = data.table("breast_cancer")
    return supervised(split, seed, 32, lambda: perceptron(30, 2), lambda net: Adam(net.parameters(), lr=1e-3))


def build_diabetes(seed: int) -> Bundle:
    split = data.table("diabetes")
    return supervised(split, seed, 32, lambda: perceptron(10, 1), lambda net: Adam(net.parameters(), lr=1e-3))


def build_friedman(seed: int) -> Bundle:
    split = data.table("friedman")
    return supervised(
        split, seed, 32, lambda: perceptron(10, 1), lambda net: SGD(net.parameters(), lr=1e-3, momentum=0.9)
    )


TABLES = tuple(
    Task(name, steps, lr, build, held_out=True, find_data=data.find_scikit_learn)
    for name, steps, lr, build in (
        ("digits-logistic", 1500, (1e-2, 1e1), build_logistic),
        ("cancer-mlp", 600, (1e-5, 1e-2), build_cancer),
        ("diabetes-mlp", 1000, (1e-4, 1e-1), build_diabetes),
        ("friedman-mlp", 2000, (1e-4, 1e-1), build_friedman),
    )
)
