"""What a development task is: a model, its data and its budget, rebuilt fresh and deterministic from a seed.

Running and scoring live elsewhere; a task knows nothing about learning-rate schedules.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn


@dataclass
class Bundle:
    """Everything one run needs; `loss` is forward only, the caller does zero_grad, backward, clip and step."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    loader: Iterable[Any]
    loss: Callable[[Any], Tensor]
    evaluate: Callable[[], float]
    test: Callable[[], float]
    clip: float | None = None


@dataclass(frozen=True)
class Task:
    """A workload: `total_steps` is its budget; rivals are tuned from the middle of the interval `lr` outward.

    `held_out` tasks only check a claim: no default may be chosen on them. `find_data` raises FileNotFoundError, saying
    how to get it, where the data that `build` needs is missing.
    """

    name: str
    total_steps: int
    lr: tuple[float, float]
    build: Callable[[int], Bundle]
    held_out: bool = False
    find_data: Callable[[], object] = lambda: None


class Batches:
    """Re-iterable shuffled mini-batches of in-memory tensors; each `iter()` is the next epoch, as with a DataLoader.

    The order depends on (seed, epoch) only, so two loaders of one seed agree batch for batch. A last, smaller batch is
    dropped: a change of batch size would be a change of gradient noise.
    """

    def __init__(self, tensors: Sequence[Tensor], batch_size: int, seed: int) -> None:
        self.tensors, self.batch_size, self.seed = tuple(tensors), batch_size, seed
        self.epoch = 0

    def __len__(self) -> int:
        return len(self.tensors[0]) // self.batch_size

    def set_epoch(self, epoch: int) -> None:
        """Make the next `iter()` give this epoch (the name that torch's DistributedSampler uses)."""
        self.epoch = epoch

    def __iter__(self) -> Iterator[tuple[Tensor, ...]]:
        order = permutation(len(self.tensors[0]), self.seed, self.epoch)
        self.epoch += 1
        for start in range(0, len(self) * self.batch_size, self.batch_size):
            index = order[start : start + self.batch_size]
            yield tuple(tensor[index] for tensor in self.tensors)


def permutation(size: int, seed: int, epoch: int) -> Tensor:
    """A shuffle of range(size) that depends on its arguments only, never on the global generator."""
    generator = torch.Generator().manual_seed(1_000_003 * seed + epoch)
    return torch.randperm(size, generator=generator)


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Build a model inside this block: its initial weights follow `seed`, the caller's generator is left alone."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield


def mean_loss(
    model: nn.Module, loss: Callable[[Any], Tensor], tensors: Sequence[Tensor], batch_size: int = 512
) -> Callable[[], float]:
    """A function () -> mean of `loss` over `tensors`, in eval mode, without gradient; the train mode is put back."""

    def measure() -> float:
        was_training = model.training
        model.eval()
        total, count = 0.0, len(tensors[0])
        with torch.no_grad():
            for start in range(0, count, batch_size):
                batch = tuple(tensor[start : start + batch_size] for tensor in tensors)
                total += loss(batch).item() * len(batch[0])
        model.train(was_training)
        return total / count

    return measure
