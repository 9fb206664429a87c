"""Tables of numbers that ship with scikit-learn: a convex problem, a soon overfitted one, and two regressions.

Kinds of work on which nothing was ever chosen. Losses of the regressions begin a hundred times above where they end:
the targets are not standardised, so the first thing learned is their mean.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn
from torch.nn import functional
from torch.optim import SGD, Adam, Optimizer

from autolrs.bench.tasks import data
from autolrs.bench.tasks._task import Batches, Bundle, Task, mean_loss, seeded, top1


def perceptron(inputs: int, outputs: int, width: int = 64) -> nn.Module:
    return nn.Sequential(
        nn.Linear(inputs, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, outputs)
    )


def bundle(
    split: data.Split,
    seed: int,
    model: Callable[[], nn.Module],
    optimizer: Callable[[nn.Module], Optimizer],
) -> Bundle:
    """Cross-entropy where targets are labels, squared error where they are values."""
    with seeded(seed):
        net = model()
    labels = not split.train[1].is_floating_point()
    measure = functional.cross_entropy if labels else functional.mse_loss

    def loss(batch: tuple[Tensor, ...]) -> Tensor:
        return measure(net(batch[0]), batch[1])

    return Bundle(
        model=net,
        optimizer=optimizer(net),
        loader=Batches(split.train, 32, seed),
        loss=loss,
        evaluate=mean_loss(net, loss, split.validation),
        test=mean_loss(net, loss, split.test),
        validation=split.validation,
        accuracy=top1(net, split.test) if labels else None,
    )


def build_logistic(seed: int) -> Bundle:
    def model() -> nn.Module:
        return nn.Sequential(nn.Flatten(), nn.Linear(64, 10))

    return bundle(data.digits(), seed, model, lambda net: SGD(net.parameters(), lr=0.1))


def build_cancer(seed: int) -> Bundle:
    split = data.table("breast_cancer")
    return bundle(split, seed, lambda: perceptron(30, 2), lambda net: Adam(net.parameters(), lr=1e-3))


def build_diabetes(seed: int) -> Bundle:
    split = data.table("diabetes")
    return bundle(split, seed, lambda: perceptron(10, 1), lambda net: Adam(net.parameters(), lr=1e-3))


def build_friedman(seed: int) -> Bundle:
    split = data.table("friedman")
    return bundle(split, seed, lambda: perceptron(10, 1), lambda net: SGD(net.parameters(), lr=1e-3, momentum=0.9))


TABLES = tuple(
    Task(name, steps, lr, build, held_out=True, find_data=data.find_scikit_learn)
    for name, steps, lr, build in (
        ("digits-logistic", 1500, (1e-2, 1e1), build_logistic),
        ("cancer-mlp", 600, (1e-5, 1e-2), build_cancer),
        ("diabetes-mlp", 1000, (1e-4, 1e-1), build_diabetes),
        ("friedman-mlp", 2000, (1e-4, 1e-1), build_friedman),
    )
)
