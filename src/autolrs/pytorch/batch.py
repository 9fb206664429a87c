"""Batches as trees of tensors: their size, copies that the user's loop cannot change, and equal parts for ranks."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
from torch import Tensor


def size_of_batch(batch: Any) -> int:
    """Bytes of all tensors and arrays in a batch."""
    if isinstance(batch, Tensor):
        return batch.numel() * batch.element_size()
    if isinstance(batch, np.ndarray):
        return int(batch.nbytes)
    if isinstance(batch, dict):
        return sum(size_of_batch(value) for value in batch.values())
    if isinstance(batch, (list, tuple)):
        return sum(size_of_batch(value) for value in batch)
    return 64  # a number or a short string


def clone_batch(batch: Any) -> Any:
    """A copy in which tensors are cloned without their graph."""
    if isinstance(batch, Tensor):
        return batch.detach().clone().requires_grad_(batch.requires_grad)
    if isinstance(batch, dict):
        return (
            type(batch)((key, clone_batch(value)) for key, value in batch.items())
            if type(batch) is dict
            else copy.deepcopy(batch)
        )
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*(clone_batch(value) for value in batch))
    if type(batch) in (list, tuple):
        return type(batch)(clone_batch(value) for value in batch)
    return copy.deepcopy(batch)


def part_of_batch(batch: Any, rank: int, size: int) -> Any:
    """The examples of a batch that are this rank's: the `rank`-th of `size` equal parts along the first dimension.

    Numbers, strings and tensors without dimensions go to every rank; a list or tuple without tensors is a list of
    examples if it is as long as the batch.
    """
    counts = set(_counts(batch))
    if len(counts) != 1:
        found = f"of {' and '.join(map(str, sorted(counts)))} examples" if counts else "without a dimension"
        raise ValueError(
            f"a batch cannot be split on {size} workers: its tensors are {found}; override `split` of `TorchTask`"
        )
    count = counts.pop()
    if count % size:
        raise ValueError(
            f"a batch of {count} examples cannot be split equally on {size} workers: choose a batch size that "
            f"{size} divides, and `drop_last=True`"
        )
    share = count // size
    return _cut(batch, slice(rank * share, (rank + 1) * share), count)


def _counts(batch: Any) -> list[int]:
    """First dimensions of all tensors and arrays."""
    if isinstance(batch, (Tensor, np.ndarray)):
        return [len(batch)] if batch.ndim else []
    if isinstance(batch, dict):
        return [count for value in batch.values() for count in _counts(value)]
    if isinstance(batch, (list, tuple)):
        return [count for value in batch for count in _counts(value)]
    return []


def _cut(batch: Any, part: slice, count: int) -> Any:
    if isinstance(batch, (Tensor, np.ndarray)):
        return batch[part] if batch.ndim else batch
    if type(batch) is dict:
        return {key: _cut(value, part, count) for key, value in batch.items()}
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*(_cut(value, part, count) for value in batch))
    if type(batch) in (list, tuple):
        if len(batch) == count and not _counts(batch):
            return batch[part]
        return type(batch)(_cut(value, part, count) for value in batch)
    if batch is None or isinstance(batch, (bool, int, float, complex, str, bytes)):
        return batch
    raise ValueError(f"a batch with a {type(batch).__name__} cannot be split: override `split` of `TorchTask`")
