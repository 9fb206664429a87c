"""Ranks of one run: rank 0 decides, the others follow; losses are averaged once per boundary, never per step.

`Comm` is the little that is asked of a process group; an adapter implements it (`pytorch/comm.py`). What is built on it
stands here, so that every rank goes through the same exchanges in the same order and sees the same failures.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol


class Comm(Protocol):
    """A group of processes that train together. Every method is called by all ranks, in the same order.

    `where` names the moment for the error that a rank raises when the others do not come.
    """

    rank: int
    size: int

    def gather(self, values: Sequence[float], where: str) -> list[list[float]]:
        """Every rank's values, in the order of ranks; all give equally many."""

    def exchange(self, value: Any, where: str) -> list[Any]:
        """Every rank's JSON-able value, in the order of ranks."""

    def broadcast(self, value: Any, where: str) -> Any:
        """Rank 0's JSON-able value; what others give is ignored."""

    def meet(self, where: str) -> None:
        """Wait for all ranks; the error on a time-out names the missing one where the backend can."""


class Alone:
    """One process."""

    rank, size = 0, 1

    def gather(self, values: Sequence[float], where: str) -> list[list[float]]:
        """The values themselves."""
        return [list(values)]

    def exchange(self, value: Any, where: str) -> list[Any]:
        """The value itself."""
        return [value]

    def broadcast(self, value: Any, where: str) -> Any:
        """The value itself."""
        return value

    def meet(self, where: str) -> None:
        """Nobody to wait for."""


class RankError(RuntimeError):
    """Another rank failed, or the ranks went different ways."""


class LostRankError(RankError):
    """Another rank did not come: nothing can be agreed on any more."""


class Shared(NamedTuple):
    """Losses averaged over ranks, and what a reader of the journal should know about them."""

    losses: list[float]
    remark: str


def share(comm: Comm, losses: Sequence[float], room: int, position: int) -> Shared:
    """The mean over ranks of each of up to `room` losses, in one exchange; a NaN or Inf of any rank is seen by all.

    `position` must be the same everywhere: it is the step that a rank believes to be at. Where mixed precision skipped
    a step on some ranks alone, all go on with the smallest number of losses.

    >>> share(Alone(), [2.0, 1.0], 2, 7).losses
    [2.0, 1.0]
    """
    if comm.size == 1:
        return Shared(list(losses), "")
    padding = [0.0] * (room - len(losses))
    rows = comm.gather([float(position), float(len(losses)), *losses, *padding], "the end of a stretch of steps")
    _same_step([int(row[0]) for row in rows])
    counts = [int(row[1]) for row in rows]
    fewest = min(counts)
    columns = list(zip(*(row[2 : 2 + fewest] for row in rows), strict=True))
    remarks = []
    if max(counts) > fewest:
        remarks.append(f"ranks counted {counts} steps since the last boundary: going on with {fewest}")
    bad = [rank for rank, row in enumerate(rows) if not all(map(math.isfinite, row[2 : 2 + fewest]))]
    if bad and len(bad) < comm.size:
        remarks.append(f"losses that are not finite came from rank {', '.join(map(str, bad))} alone")
    return Shared([sum(column) / comm.size for column in columns], "; ".join(remarks))


def _same_step(positions: list[int]) -> None:
    if len(set(positions)) > 1:
        raise RankError(
            f"the ranks are at different steps, {_by_rank(positions)}: call `auto.step` once per optimizer step on "
            "every rank"
        )


def average(comm: Comm, compute: Callable[[], float], where: str) -> float:
    """The mean of a number that every rank computes; if that fails on one, all of them raise."""
    if comm.size == 1:
        return float(compute())
    error: Exception | None = None
    value = 0.0
    try:
        value = float(compute())
    except Exception as caught:
        error = caught
    comm.meet(where)
    rows = comm.gather([float(error is not None), value], where)
    if error is not None:
        raise error
    failed = [rank for rank, row in enumerate(rows) if row[0]]
    if failed:
        raise RankError(f"{where} failed on rank {', '.join(map(str, failed))}")
    return sum(row[1] for row in rows) / comm.size


def first(comm: Comm, make: Callable[[], Any], where: str) -> Any:
    """What rank 0 makes, JSON-able, on every rank; if it fails there, all of them raise."""
    if comm.size == 1:
        return make()
    message: dict[str, Any] = {}
    error: Exception | None = None
    if comm.rank == 0:
        try:
            message = {"value": make()}
        except Exception as caught:
            error = caught
            message = {"error": f"{type(caught).__name__}: {caught}"}
    message = comm.broadcast(message, where)
    if error is not None:
        raise error
    if "error" in message:
        raise RankError(f"{where} failed on rank 0: {message['error']}")
    return message["value"]


def agree(comm: Comm, values: dict[str, Any], where: str) -> None:
    """Raise on every rank an error that names the first of `values` in which one differs from rank 0."""
    everyone = comm.exchange(values, where)
    for name in dict.fromkeys(name for one in everyone for name in one):
        for rank, one in enumerate(everyone):
            if one.get(name) != everyone[0].get(name):
                raise ValueError(
                    f"`{name}` is {everyone[0].get(name)!r} on rank 0 and {one.get(name)!r} on rank {rank}: "
                    "all ranks must be given the same"
                )


def _by_rank(values: Sequence[Any]) -> str:
    return ", ".join(f"{value} on rank {rank}" for rank, value in enumerate(values))
