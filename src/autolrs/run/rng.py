"""The global random state of Python and numpy, which a loader or a user's own code may draw from, as plain values."""

from __future__ import annotations

import random
from typing import Any

import numpy as np


class PlainRng:
    """Reads, puts back and compares it; see `run.replay.Rng`. An adapter adds its framework's own."""

    def get(self) -> dict[str, Any]:
        """The state as arrays, numbers and lists."""
        name, keys, *rest = np.random.get_state()  # noqa: NPY002 - the user's code may draw from it
        version, internal, gauss = random.getstate()
        return {"python": [version, np.array(internal, np.int64), gauss], "numpy": [name, np.array(keys), *rest]}

    def set(self, state: dict[str, Any]) -> None:
        """Put a state back."""
        version, internal, gauss = state["python"]
        random.setstate((version, tuple(internal.tolist()), gauss))
        name, keys, *rest = state["numpy"]
        np.random.set_state((name, keys, *rest))  # noqa: NPY002 - see `get`

    def same(self, a: Any, b: Any) -> bool:
        """Whether two states are equal."""
        if isinstance(a, np.ndarray):
            return np.array_equal(a, b)
        if isinstance(a, dict):
            return a.keys() == b.keys() and all(self.same(value, b[key]) for key, value in a.items())
        if isinstance(a, list):
            return len(a) == len(b) and all(map(self.same, a, b))
        return bool(a == b)
