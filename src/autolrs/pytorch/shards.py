"""Sharded state of a durable point, through `torch.distributed.checkpoint`: each rank writes its shards, none gathers.

Read back it is cut for as many ranks as there are, and it may be whole on either side: a sharded run goes on where the
model is not sharded, and the other way round.
Its metadata is a pickle, which is read here with nothing but torch's own descriptions of tensors allowed.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from autolrs.pytorch import averaging
from autolrs.pytorch.state import TorchHost, is_sharded, local, shard_like


def take(host: TorchHost, live: dict[str, Any]) -> dict[str, Tensor]:
    """The live sharded tensors by name; their copies in `live`, which a rank's own file holds, make room for None."""
    likes = _likes(host)
    tensors = _places(host.capture())
    copies = _places(live)
    found: dict[str, Tensor] = {}
    for name, (holder, key) in tensors.items():
        tensor = holder[key]
        if is_sharded(tensor):
            found[name] = tensor
        elif name.startswith("average/") and is_sharded(likes(name)):
            found[name] = shard_like(tensor, likes(name))  # kept as this rank's part alone
        if name in found:
            copies[name][0][copies[name][1]] = None
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
    import torch.distributed as dist
    from torch.distributed.checkpoint import load

    likes, places = _likes(host), _places(live)
    targets: dict[str, Tensor] = {}
    for name, (shape, dtype) in described.items():
        like = likes(name)
        if like is None or list(like.shape) != shape:
            here = "is not there" if like is None else f"is {tuple(like.shape)}"
            raise ValueError(f"the checkpoint is of another model: {name!r} is {tuple(shape)} there and {here} here")
        targets[name] = torch.empty_like(like.detach(), dtype=getattr(torch, dtype.removeprefix("torch.")))
    load(targets, storage_reader=_reader(path), no_dist=not dist.is_initialized())
    for name, target in targets.items():
        holder, key = places[name]
        holder[key] = local(target).cpu()


def cut(host: TorchHost, live: dict[str, Any]) -> None:
    """Of what is whole in `live` and sharded here, leave this rank's shards."""
    from torch.distributed.tensor import distribute_tensor

    likes = _likes(host)
    for name, (holder, key) in _places(live).items():
        whole, like = holder[key], likes(name)
        if is_sharded(like) and isinstance(whole, Tensor) and whole.shape == like.shape:
            # Without a source rank nothing is sent: everyone has the whole.
            shard = distribute_tensor(whole.to(like.device), like.device_mesh, like.placements, src_data_rank=None)
            holder[key] = local(shard).cpu().clone()


def differs(there: Any, here: Any) -> bool:
    """Whether tensors of a saved tree are other parts of something than those that are here."""
    if isinstance(here, Tensor):
        return is_sharded(here) or (isinstance(there, Tensor) and there.shape != here.shape)
    if isinstance(here, dict) and isinstance(there, dict):
        return any(differs(there[key], value) for key, value in here.items() if key in there)
    if isinstance(here, (list, tuple)) and isinstance(there, (list, tuple)):
        return any(map(differs, there, here))
    return False


def _places(tree: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Holder and key, by name, of all that is or may be shaped like a parameter: weights, moments, averages."""
    places: dict[str, tuple[Any, Any]] = {f"model/{path}": (tree["model"], path) for path in tree["model"]}
    for i, state in tree["optimizer"]["state"].items():
        if isinstance(i, int) and isinstance(state, dict):
            places |= {f"optimizer/{i}/{key}": (state, key) for key in state}
    average = tree["tracked"].get(averaging.NAME, {})
    for part in ("x", "v"):
        places |= {f"average/{i}/{part}": (average[part], i) for i in range(len(average.get(part, ())))}
    return places


def _likes(host: TorchHost) -> Callable[[str], Any]:
    """What here a tensor of a given name is shaped like: itself, or the parameter that it belongs to."""
    model, parameters = host.capture()["model"], host.parameters()

    def like(name: str) -> Any:
        part, which, *_ = name.split("/", 2)
        if part == "model":
            return model.get(name.removeprefix("model/"))
        return parameters[int(which)] if int(which) < len(parameters) else None

    return like


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
