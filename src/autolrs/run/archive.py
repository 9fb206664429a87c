"""A run folder's state as one `.npz`: plain values and numpy arrays, however nested, replaced whole and never pickled.

For adapters whose framework has no file format that fits; PyTorch's is `pytorch/checkpoint.py`.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autolrs.run.files import replace_whole

Arrays = dict[str, NDArray[Any]]


def pack(tree: Any) -> Arrays:
    """`tree` as a flat dictionary of arrays, which numpy, Orbax and Flax can all save.

    >>> sorted(pack({"losses": [0.5], "weights": np.zeros(2)}))
    ['array0', 'plain']
    """
    arrays: Arrays = {}

    def walk(value: Any) -> Any:
        if isinstance(value, (np.ndarray, np.generic)):
            array, name = np.asarray(value), f"array{len(arrays)}"
            # Types that numpy itself does not know (bfloat16) would come back as raw bytes without their name.
            known = array.dtype.isbuiltin == 1
            arrays[name] = array if known else np.frombuffer(array.tobytes(), np.uint8)
            return {"array": name, "dtype": array.dtype.name, "shape": list(array.shape)}
        if isinstance(value, dict):
            return {"dict": [[key, walk(item)] for key, item in value.items()]}
        if isinstance(value, (list, tuple)):
            return [walk(item) for item in value]
        if value is None or isinstance(value, (bool, int, float, str)):
            return value
        raise TypeError(f"only arrays and plain values can be saved, got {type(value).__name__}")

    plain = json.dumps(walk(tree)).encode()
    return {"plain": np.frombuffer(plain, np.uint8), **arrays}


def unpack(arrays: Mapping[str, Any]) -> Any:
    """The inverse of `pack`; tuples come back as lists.

    >>> unpack(pack({"losses": [0.5], 3: np.arange(2)}))
    {'losses': [0.5], 3: array([0, 1])}
    """

    def walk(value: Any) -> Any:
        if isinstance(value, list):
            return [walk(item) for item in value]
        if not isinstance(value, dict):
            return value
        if "dict" in value:
            return {key: walk(item) for key, item in value["dict"]}
        array, dtype = np.asarray(arrays[value["array"]]), np.dtype(value["dtype"])
        return (array if array.dtype == dtype else array.view(dtype)).reshape(value["shape"])

    return walk(json.loads(np.asarray(arrays["plain"]).tobytes()))


def save(path: Path, tree: Any) -> None:
    """Write `tree`, replacing the file whole; a failure only warns."""
    arrays = pack(tree)
    replace_whole(path, lambda file: np.savez(file, **arrays))  # type: ignore[arg-type]


def load(path: Path) -> Any:
    """What `save` wrote; a damaged or foreign file is a ValueError that names it."""
    try:
        with open(path, "rb") as raw, np.load(raw, allow_pickle=False) as file:
            return unpack(dict(file))
    except (ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile) as error:
        raise ValueError(f"{path} is not a whole checkpoint of autolrs: {error}") from error
