"""The user's random state (torch on every device in use, Python's, numpy's, a loader's generators) as plain values."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import torch


class GlobalRng:
    """Reads, puts back and compares the global random state; see `run.replay.Rng`."""

    def get(self) -> dict[str, Any]:
        """The state as tensors, numbers and lists, which a `weights_only` checkpoint can hold."""
        name, keys, *rest = np.random.get_state()  # noqa: NPY002 - the user's code may draw from it
        version, internal, gauss = random.getstate()
        return {
            "torch": torch.get_rng_state(),
            "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else [],
            "python": [version, torch.tensor(internal, dtype=torch.int64), gauss],
            "numpy": [name, torch.from_numpy(np.asarray(keys, np.int64)), *rest],
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
            # Beside the words: the place among them, and the second normal number of a pair, kept for the next call.
            and a["numpy"][2:] == b["numpy"][2:]
            and a["python"][2] == b["python"][2]
            and torch.equal(a["python"][1], b["python"][1])
            and torch.equal(a["numpy"][1], b["numpy"][1])
            and _equal(a["cuda"], b["cuda"])
        )


class LoaderRng(GlobalRng):
    """The global random state together with the generators that a loader was given to shuffle with."""

    def __init__(self, loader: Any) -> None:
        sampler = getattr(loader, "sampler", None)
        inner = getattr(getattr(loader, "batch_sampler", None), "sampler", None)
        found = [getattr(owner, "generator", None) for owner in (loader, sampler, inner)]
        found.append(getattr(loader, "synchronized_generator", None))  # Accelerate's, of several processes
        self._generators = list({id(g): g for g in found if isinstance(g, torch.Generator)}.values())

    def get(self) -> dict[str, Any]:
        """The state as plain values."""
        return {**super().get(), "generators": [generator.get_state() for generator in self._generators]}

    def set(self, state: dict[str, Any]) -> None:
        """Put a state back."""
        super().set(state)
        for generator, value in zip(self._generators, state["generators"], strict=True):
            generator.set_state(value)

    def same(self, a: dict[str, Any], b: dict[str, Any]) -> bool:
        """Whether two states are equal."""
        return super().same(a, b) and _equal(a["generators"], b["generators"])


def _equal(a: list[torch.Tensor], b: list[torch.Tensor]) -> bool:
    return len(a) == len(b) and all(map(torch.equal, a, b))
