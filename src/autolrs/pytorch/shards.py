"""Sharded state of a durable point, through `torch.distributed.checkpoint`: each rank writes its shards, none gathers.

Its metadata is a pickle, which is read here with nothing but torch's own descriptions of tensors allowed.
"""

from __future__ import annotations

import io
import pickle
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from autolrs.pytorch.state import TorchHost, is_sharded


def take(host: TorchHost, live: dict[str, Any]) -> dict[str, Tensor]:
    """The live sharded tensors by name; their copies in `live`, which a rank's own file holds, make room for None."""
    tree = host.capture()
    found: dict[str, Tensor] = {}
    for name, holder, key, copies in _places(tree, live):
        if is_sharded(holder[key]):
            found[name] = holder[key]
            copies[key] = None
    return found


def describe(shards: dict[str, Tensor]) -> dict[str, Any]:
    """Shapes and types, as plain values."""
    return {name: [list(tensor.shape), str(tensor.dtype)] for name, tensor in shards.items()}


def write(path: Path, shards: dict[str, Tensor]) -> None:
    """Write all ranks' shards into the folder `path`; called on every rank."""
    from torch.distributed.checkpoint import FileSystemWriter, save

    save(dict(shards), storage_writer=FileSystemWriter(path, sync_files=True), no_dist=False)


def read(path: Path, described: dict[str, Any], host: TorchHost, live: dict[str, Any]) -> None:
    """Put this rank's shards back into `live`, cut for as many ranks as there are now; called on every rank."""
    from torch.distributed.checkpoint import load

    parameters = host.parameters()
    model = host.capture()["model"]
    targets: dict[str, Tensor] = {}
    for name, (shape, dtype) in described.items():
        part, *rest = name.split("/")
        like = model.get(rest[0]) if part == "model" else parameters[int(rest[0])]
        if like is None or list(like.shape) != shape or not is_sharded(like):
            here = "is not there" if like is None else f"is {tuple(like.shape)}"
            raise ValueError(f"the checkpoint is of another model: {name!r} is {tuple(shape)} there and {here} here")
        targets[name] = torch.empty_like(like.detach(), dtype=getattr(torch, dtype.removeprefix("torch.")))
    load(targets, storage_reader=_reader(path), no_dist=False)
    for name, target in targets.items():
        part, *rest = name.split("/")
        tensor = target.to_local().cpu()  # type: ignore[attr-defined]
        if part == "model":
            live["model"][rest[0]] = tensor
        else:
            live["optimizer"]["state"][int(rest[0])][rest[1]] = tensor


def _places(tree: dict[str, Any], live: dict[str, Any]) -> list[tuple[str, dict[str, Any], str, dict[str, Any]]]:
    """Name, holder and key of every tensor that may be sharded like a parameter, and the copy's holder."""
    places = [(f"model/{path}", tree["model"], path, live["model"]) for path in tree["model"]]
    copies = live["optimizer"]["state"]
    for i, state in tree["optimizer"]["state"].items():
        if isinstance(i, int) and isinstance(state, dict):
            places += [(f"optimizer/{i}/{key}", state, key, copies[i]) for key in state]
    return places


def _reader(path: Path) -> Any:
    from torch.distributed.checkpoint import FileSystemReader
    from torch.distributed.checkpoint.metadata import Metadata, StorageMeta

    metadata = _Descriptions(io.BytesIO((path / ".metadata").read_bytes())).load()
    if not isinstance(metadata, Metadata):
        raise pickle.UnpicklingError(".metadata does not describe a checkpoint")

    class Reader(FileSystemReader):
        def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
            if metadata.storage_meta is None:
                metadata.storage_meta = StorageMeta()
            metadata.storage_meta.load_id = self.load_id
            return metadata

    return Reader(path)


class _Descriptions(pickle.Unpickler):
    """Loads torch's descriptions of tensors and refuses to look up anything else."""

    def find_class(self, module: str, name: str) -> Any:
        """Classes of the metadata, and torch's types of numbers."""
        allowed = module in ("torch.distributed.checkpoint.metadata", "torch.distributed.checkpoint.filesystem")
        found = super().find_class(module, name) if allowed or module in ("torch", "torch.serialization") else None
        if isinstance(found, torch.dtype) or (isinstance(found, type) and (allowed or found is torch.Size)):
            return found
        if (module, name) in _PLAIN:
            return super().find_class(module, name)
        raise pickle.UnpicklingError(f"a checkpoint's metadata may not name {module}.{name}")


_PLAIN = {
    ("torch.serialization", "_get_layout"),  # turns a name into a layout by a table
    ("collections", "OrderedDict"),
    ("pathlib", "PosixPath"),
    ("pathlib", "WindowsPath"),
    ("pathlib", "Path"),
    ("pathlib._local", "PosixPath"),
    ("pathlib._local", "WindowsPath"),
}
