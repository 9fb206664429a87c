"""What probes read: the user's data, apart from `fit`'s own reading of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import keras
import numpy as np

from autolrs.run.replay import Batches


class ArrayBatches:
    """Batches of arrays; the order of an epoch depends on the seed and its number alone."""

    def __init__(self, parts: tuple[Any, ...], batch_size: int, shuffle: bool, seed: int) -> None:
        self._parts = [keras.tree.map_structure(np.asarray, part) for part in parts if part is not None]
        self._batch_size, self._shuffle, self._seed, self._epoch = batch_size, shuffle, seed, 0
        self.sampler = self  # told the epoch by `Batches`

    def set_epoch(self, epoch: int) -> None:
        self._epoch = epoch

    def __iter__(self) -> Iterator[Any]:
        order = np.arange(len(keras.tree.flatten(self._parts[0])[0]))
        if self._shuffle:
            np.random.default_rng([self._seed, self._epoch]).shuffle(order)
        for i in range(0, len(order), self._batch_size):
            rows = order[i : i + self._batch_size]
            yield tuple(keras.tree.map_structure(lambda array, rows=rows: array[rows], part) for part in self._parts)


class ProbeBatches(Batches):
    """The probes' own reader of the data: `fit` reads its own, so that this one goes on from stage to stage."""

    def mark(self) -> None:
        rng = self._rng.get()
        super().mark()
        self._rng.set(rng)  # beginning an epoch may draw, and no number may be missing in `fit`

    def forget(self) -> None:
        self.recording = False
        self._drop_cache()


def size_of_batch(batch: Any) -> int:
    return sum(map(_size, keras.tree.flatten(batch)))


def _size(leaf: Any) -> int:
    if not hasattr(leaf, "nbytes") and hasattr(leaf, "numpy"):  # a tensor of TensorFlow's
        leaf = leaf.numpy()
    return getattr(leaf, "nbytes", 64)
