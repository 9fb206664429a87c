"""Batches as trees of tensors: their size, and copies that the user's loop cannot change."""

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
