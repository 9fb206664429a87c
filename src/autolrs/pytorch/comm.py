"""Ranks over `torch.distributed`: the default group, its backend, its time-out. Values travel as JSON, not pickle."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from autolrs.run.comm import Alone, Comm, LostRankError

T = TypeVar("T")


def current() -> Comm:
    """The ranks of the default process group, or one process alone where there is none."""
    if dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1:
        return Ranks()
    return Alone()


class Ranks:
    """The default group as a `Comm`."""

    def __init__(self) -> None:
        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        backends = dict(pair.split(":") for pair in dist.get_backend_config().split(","))
        self._gloo = backends.get("cpu") == "gloo"
        # An accelerator's backend cannot send what lies in the host's memory.
        self._device = torch.device("cpu") if "cpu" in backends else torch.device(next(iter(backends)))

    def gather(self, values: Sequence[float], where: str) -> list[list[float]]:
        """Every rank's values, in the order of ranks; all give equally many."""
        return [row.tolist() for row in self._all(torch.tensor(values, dtype=torch.float64), where)]

    def exchange(self, value: Any, where: str) -> list[Any]:
        """Every rank's JSON-able value, in the order of ranks."""
        self.meet(where)
        data = _bytes(value)
        sizes = [int(row[0]) for row in self.gather([data.numel()], where)]
        padded = torch.zeros(max(sizes), dtype=torch.uint8)
        padded[: data.numel()] = data
        rows = self._all(padded, where)
        return [_value(row[:size]) for row, size in zip(rows, sizes, strict=True)]

    def broadcast(self, value: Any, where: str) -> Any:
        """Rank 0's JSON-able value."""
        data = _bytes(value) if self.rank == 0 else torch.empty(0, dtype=torch.uint8)
        size = torch.tensor([data.numel()], device=self._device)
        self._watched(lambda: dist.broadcast(size, src=0), where)
        data = (data if self.rank == 0 else torch.empty(int(size), dtype=torch.uint8)).to(self._device)
        self._watched(lambda: dist.broadcast(data, src=0), where)
        return _value(data.cpu())

    def meet(self, where: str) -> None:
        """Wait for all ranks. Only gloo can tell who is missing; other backends find out in the exchange itself."""
        if not self._gloo:
            return
        group: Any = dist.group.WORLD
        # The public function takes its own default instead of the group's time-out.
        timeout = group._get_backend(torch.device("cpu")).options._timeout
        self._watched(lambda: group.monitored_barrier(timeout, True), where)

    def _all(self, tensor: Tensor, where: str) -> list[Tensor]:
        tensor = tensor.to(self._device)
        rows = [torch.empty_like(tensor) for _ in range(self.size)]
        self._watched(lambda: dist.all_gather(rows, tensor), where)
        return [row.cpu() for row in rows]

    def _watched(self, exchange: Callable[[], T], where: str) -> T:
        try:
            return exchange()
        except RuntimeError as error:
            reason = next(iter(str(error).strip().splitlines()), type(error).__name__)[:160]
            raise LostRankError(
                f"rank {self.rank} of {self.size} waited at {where} and another rank did not come: it ended, hangs, "
                f"or took another way; the process group's `timeout` says how long to wait ({reason})"
            ) from error


def _bytes(value: Any) -> Tensor:
    return torch.frombuffer(bytearray(json.dumps(value).encode()), dtype=torch.uint8)


def _value(data: Tensor) -> Any:
    return json.loads(bytes(data.tolist()))
