"""What a development task is: a model, its data and its budget, rebuilt fresh and deterministic from a seed.

Running and scoring live elsewhere; a task knows nothing about learning-rate schedules.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from autolrs.bench.tasks.data import Split

PROFILES = ("smoke", "cpu", "paper")  # seconds; seconds to minutes on one core; the real thing
SMOKE_STEPS = 60


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
    validation: tuple[Tensor, ...] | None = None  # what `evaluate` measures, for methods that differentiate it
    accuracy: Callable[[], float] | None = None  # higher is better: top-1 accuracy, BLEU
    advance: Callable[[int], None] = lambda committed: None  # told the committed steps before each: BERT's two phases
    finish: Callable[[], dict[str, float]] = dict  # further figures of the trained model: BERT's fine-tuning


@dataclass(frozen=True)
class Task:
    """A workload: `total_steps` is its budget; rivals are tuned from the middle of the interval `lr` outward.

    `held_out` tasks only check a claim: no default may be chosen on them. `find_data` raises FileNotFoundError, saying
    how to get it, where the data that `build` needs is missing. `others` are the same task in other profiles.
    `target` is the accuracy that counts as done, where the paper names one; else it is the tuned cosine's loss.
    `hand_tuned` is the schedule of the model's own paper, (optimizer, total_steps) -> scheduler; `recipe` are the
    AutoLRS paper's settings for this experiment.
    """

    name: str
    total_steps: int
    lr: tuple[float, float]
    build: Callable[[int], Bundle]
    held_out: bool = False
    find_data: Callable[[], object] = lambda: None
    profile: str = "cpu"
    others: tuple[Task, ...] = ()
    target: float | None = None
    hand_tuned: Callable[[Optimizer, int], LRScheduler] | None = None
    recipe: Mapping[str, Any] = field(default_factory=dict)

    @property
    def profiles(self) -> tuple[str, ...]:
        """What `at` takes."""
        own = {self.profile, "smoke", *(other.profile for other in self.others)}
        return tuple(name for name in PROFILES if name in own)

    def at(self, profile: str) -> Task:
        """This task in another profile; where it has no smoke test of its own, a run of a few dozen steps is one."""
        for task in (self, *self.others):
            if task.profile == profile:
                return task
        if profile == "smoke":
            return replace(self, total_steps=min(self.total_steps, SMOKE_STEPS), profile="smoke", others=())
        raise ValueError(f"`profile` of {self.name} must be one of {', '.join(self.profiles)}; got {profile!r}")


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


def supervised(
    split: Split,
    seed: int,
    batch_size: int,
    model: Callable[[], nn.Module],
    optimizer: Callable[[nn.Module], torch.optim.Optimizer],
    measure: Callable[..., Tensor] | None = None,
    clip: float | None = None,
) -> Bundle:
    """Cross-entropy where targets are labels, squared error where they are values; or `measure(net, *batch)`.

    The optimizer's own LR is a placeholder that every method overwrites.
    """
    with seeded(seed):
        net = model()
    labels = measure is None and not split.train[1].is_floating_point()
    usual = functional.cross_entropy if labels else functional.mse_loss

    def loss(batch: tuple[Tensor, ...]) -> Tensor:
        return usual(net(batch[0]), batch[1]) if measure is None else measure(net, *batch)

    return Bundle(
        model=net,
        optimizer=optimizer(net),
        loader=Batches(split.train, batch_size, seed),
        loss=loss,
        evaluate=mean_loss(net, loss, split.validation),
        test=mean_loss(net, loss, split.test),
        clip=clip,
        validation=split.validation,
        accuracy=top1(net, split.test) if labels else None,
    )


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


def top1(model: nn.Module, tensors: Sequence[Tensor], batch_size: int = 512) -> Callable[[], float]:
    """A function () -> share of `tensors` (inputs, labels) whose highest logit is right, in eval mode."""
    return mean_loss(model, lambda batch: (model(batch[0]).argmax(1) == batch[1]).float().mean(), tensors, batch_size)


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
