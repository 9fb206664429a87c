"""The demo's task: a small network on scikit-learn's digits, which ship with the package and need no download.

Images are shifted by up to a pixel at random, so that the network does not know them by heart after ten epochs and the
training loss keeps meaning something. Nothing here knows about learning-rate schedules but `train_cosine`, the rival
that the demo compares with.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

BATCH = 32
TRAIN, VALIDATION = 1000, 300  # images; the other 497 are for the test
LR = (1e-4, 1e-1)  # the search interval: Adam's customary 1e-3, a decade down and two up
_SPLIT_SEED = 2021  # one split for every seed: what a rival is tuned on never meets the test images

Batch = tuple[Tensor, Tensor]


class Batches:
    """Shuffled batches of shifted images. Each `iter()` is the next epoch; its order depends on (seed, epoch) alone."""

    def __init__(self, images: Tensor, labels: Tensor, seed: int) -> None:
        """`images` of shape (n, 8, 8)."""
        padded = nn.functional.pad(images, (1, 1, 1, 1))
        moves = [padded[:, y : y + 8, x : x + 8] for y in range(3) for x in range(3)]
        self._bank = torch.stack(moves).reshape(9, len(images), 64)
        self._labels, self._seed, self._epoch = labels, seed, 0

    def __len__(self) -> int:
        return len(self._labels) // BATCH

    def __iter__(self) -> Iterator[Batch]:
        generator = torch.Generator().manual_seed(1_000_003 * self._seed + self._epoch)
        self._epoch += 1
        order = torch.randperm(len(self._labels), generator=generator)
        shift = torch.randint(9, (len(order),), generator=generator)
        for start in range(0, len(self) * BATCH, BATCH):
            index = order[start : start + BATCH]
            yield self._bank[shift[start : start + BATCH], index], self._labels[index]


@dataclass
class Digits:
    """One fresh training: the same `seed` gives the same first weights and the same batches."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    loader: Batches
    validation: Batch
    test: Batch

    def loss(self, batch: Batch) -> Tensor:
        """Mean cross-entropy of a batch, forward only."""
        return nn.functional.cross_entropy(self.model(batch[0]), batch[1])

    def train_step(self, batch: Batch) -> Tensor:
        """One optimizer step; the loss before it."""
        loss = self.loss(batch)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    def validate(self) -> float:
        """Mean loss on the validation images."""
        return self.score(self.validation)[0]

    def score(self, images: Batch) -> tuple[float, float]:
        """(mean loss, accuracy) on a set of images, in eval mode; the train mode is put back."""
        was_training = self.model.training
        self.model.eval()
        with torch.no_grad():
            logits = self.model(images[0])
            loss = nn.functional.cross_entropy(logits, images[1]).item()
            accuracy = (logits.argmax(1) == images[1]).float().mean().item()
        self.model.train(was_training)
        return loss, accuracy


def build(seed: int = 0) -> Digits:
    """A network of 64-64-64-10, Adam, and the data split into train, validation and test."""
    images, labels = _load()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = nn.Sequential(
            nn.Linear(64, 64), nn.ReLU(),
            nn.Linear(64, 64), nn.ReLU(),
            nn.Linear(64, 10),
        )  # fmt: skip
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    flat, held = images.reshape(-1, 64), TRAIN + VALIDATION
    return Digits(
        model,
        optimizer,
        Batches(images[:TRAIN], labels[:TRAIN], seed),
        (flat[TRAIN:held], labels[TRAIN:held]),
        (flat[held:], labels[held:]),
    )


def make() -> tuple[nn.Module, torch.optim.Optimizer, Batches, Callable[[Batch], Tensor]]:
    """The task in the form that `autolrs range-test` takes: (model, optimizer, loader, loss_fn)."""
    task = build()
    return task.model, task.optimizer, task.loader, task.loss


def train_cosine(seed: int, peak: float, steps: int, on_step: Callable[[], None] = lambda: None) -> Digits:
    """A finished training of `steps` steps whose LR follows half a cosine from `peak` to 0."""
    task = build(seed)
    done = 0
    while done < steps:
        for batch in task.loader:
            for group in task.optimizer.param_groups:
                group["lr"] = peak * 0.5 * (1.0 + math.cos(math.pi * done / steps))
            task.train_step(batch)
            done += 1
            on_step()
            if done == steps:
                break
    return task


def _load() -> tuple[Tensor, Tensor]:
    """All images (1797, 8, 8) in [0, 1] and their labels, in the order of the split."""
    from sklearn.datasets import load_digits

    data = load_digits()
    order = np.random.default_rng(_SPLIT_SEED).permutation(len(data.target))
    images = torch.from_numpy(data.images[order] / 16.0).float()
    return images, torch.from_numpy(data.target[order]).long()
