"""The user's global random state (torch on every device in use, Python's random, numpy's) as plain values."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import torch


class GlobalRng:
    """Reads, puts back and compares the global random state; see `run.replay.Rng`."""

    def get(self) -> dict[str, Any]:
        """The state as tensors, numbers and lists, which a `weights_only` checkpoint can hold."""
        name, keys, *rest = np.random.get_state(legacy=True)  # noqa: NPY002 - the user's code may draw from it
        version, internal, gauss = random.getstate()
        return {
            "torch": torch.get_rng_state(),
            "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else [],
            "python": [version, torch.tensor(internal, dtype=torch.int64), gauss],
            "numpy": [name, torch.from_numpy(keys.astype(np.int64)), *rest],
        }

    def set(self, state: dict[str, Any]) -> None:
        """Put a state back."""
        torch.set_rng_state(state["torch"])
        if state["cuda"]:
            torch.cuda.set_rng_state_all(state["cuda"])
        version, internal, gauss = state["python"]
        random.setstate((version, tuple(internal.tolist()), gauss))
        name, keys, *rest = state["numpy"]
        np.random.set_state((name, keys.numpy().astype(np.uint32), *rest))  # noqa: NPY002 - see `get`

    def same(self, a: dict[str, Any], b: dict[str, Any]) -> bool:
        """Whether two states are equal."""
        return (
            torch.equal(a["torch"], b["torch"])
            and a["numpy"][2] == b["numpy"][2]
            and torch.equal(a["python"][1], b["python"][1])
            and torch.equal(a["numpy"][1], b["numpy"][1])
            and all(torch.equal(x, y) for x, y in zip(a["cuda"], b["cuda"], strict=True))
        )
