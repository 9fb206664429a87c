"""Batches from a loader, epoch after epoch, that can go back to a mark so that all probes of a stage see the same ones.

A loader with `state_dict`/`load_state_dict` (torchdata's StatefulDataLoader) is rewound itself. Any other has its batches cached from the mark on,
up to a limit in bytes; past it the stream goes on, and a note says so. Random numbers that fetching a batch draws are drawn again on replay, so
that a run with probes sees just what a run without them would.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol


class Rng(Protocol):
    """The user's global random state."""

    def get(self) -> Any:
        """The present state."""

    def set(self, state: Any) -> None:
        """Put a state back."""

    def same(self, a: Any, b: Any) -> bool:
        """Whether two states are equal."""


class Batches:
    """An endless, rewindable reader of `loader`; a `Stream`."""

    def __init__(
        self,
        loader: Iterable[Any],
        rng: Rng,
        *,
        replay: bool,
        limit: int = 1 << 30,
        size: Callable[[Any], int] = lambda batch: 0,
        clone: Callable[[Any], Any] = copy.deepcopy,
        note: Callable[[str], None] = lambda message: None,
    ) -> None:
        """`size` gives a batch's bytes, `clone` a copy that the user's loop cannot change."""
        self._loader, self._rng = loader, rng
        self._limit, self._size, self._clone, self._note = limit, size, clone, note
        self._rewinds_itself = hasattr(loader, "state_dict") and hasattr(loader, "load_state_dict")
        self._recording = self._replay = replay
        self._iterator: Iterator[Any] | None = None
        self._epoch = 0  # epochs begun
        self._drawn = 0  # batches drawn from the epoch under way
        self._epoch_rng: Any = None  # random state before the epoch under way was begun
        self._cache: list[
            tuple[Any, Any]
        ] = []  # (batch, random states before and after drawing it, if that changed it)
        self._bytes, self._full = 0, False
        self._cursor = 0  # batches given out since the mark
        self._marked: Any = None  # the loader's own state at the mark
        self._origin = self._place()
        self._starts: list[Any] = []  # random states before each epoch begun since the origin
        self._forced: list[Any] = []  # the same, while a checkpoint is being read forward
        self._length = 0  # batches drawn since the origin

    def next(self) -> Any:
        """The next batch: from the cache as long as it lasts, then from the loader."""
        if self._cursor < len(self._cache):
            batch, rng = self._cache[self._cursor]
            self._cursor += 1
            if rng is not None:
                self._rng.set(rng[1])
            if self._recording:
                return self._clone(batch)
            if self._cursor == len(self._cache):
                self._drop_cache()
            return batch
        self._cursor += 1
        if not self._recording or self._rewinds_itself or self._full:
            return self._draw()
        batch, rng = self._draw_watched()
        self._bytes += self._size(batch)
        if self._bytes > self._limit:
            self._overflow()
        else:
            self._cache.append((self._clone(batch), rng))
        return batch

    # Stream

    def mark(self) -> None:
        """Remember this position; record from here on."""
        self._recording = self._replay
        rest = self._cache[self._cursor :]
        if self._rewinds_itself:
            self._marked = copy.deepcopy(self._loader.state_dict())  # type: ignore[attr-defined]
        if not rest:
            self._origin, self._starts, self._length = self._place(), [], 0
        self._cache, self._cursor, self._full = rest, 0, False
        self._bytes = sum(self._size(batch) for batch, _ in rest)

    def position(self) -> int:
        """Batches given out since the mark."""
        return self._cursor

    def rewind(self, position: int = 0) -> None:
        """Back to the mark, or to a position after it."""
        if self._rewinds_itself:
            self._loader.load_state_dict(copy.deepcopy(self._marked))  # type: ignore[attr-defined]
            self._iterator = iter(self._loader)
            for _ in range(position):
                self._draw()
            self._cursor = position
        else:
            # Past a full cache the stream has gone on: that position cannot be had again, and the note said so.
            self._cursor = min(position, len(self._cache))

    def forget(self) -> None:
        """The mark is not needed any more: give out what is cached and record nothing."""
        self._recording = False
        if self._cursor >= len(self._cache):
            self._drop_cache()

    # Drawing

    def _draw(self) -> Any:
        for _ in range(2):
            if self._iterator is None:
                self._begin_epoch()
            assert self._iterator is not None
            try:
                batch = next(self._iterator)
            except StopIteration:
                if self._drawn == 0 and not self._rewinds_itself:
                    break
                self._iterator, self._drawn = None, 0
                continue
            self._drawn += 1
            self._length += 1
            return batch
        if self._epoch <= 1:
            raise ValueError("the loader gave no batch: it is empty")
        raise ValueError(
            f"the loader gave no batch in epoch {self._epoch}: it must start anew each time it is iterated (a generator does not)"
        )

    def _begin_epoch(self) -> None:
        if self._forced:
            self._rng.set(self._forced.pop(0))
        sampler = getattr(self._loader, "sampler", None)
        if hasattr(sampler, "set_epoch"):
            sampler.set_epoch(self._epoch)
        self._epoch_rng = self._rng.get()
        self._starts.append(self._epoch_rng)
        self._iterator = iter(self._loader)
        self._epoch += 1

    def _draw_watched(self) -> tuple[Any, Any]:
        """A batch, and the random states before and after drawing it if that changed them."""
        before = self._rng.get()
        batch = self._draw()
        after = self._rng.get()
        return batch, None if self._rng.same(before, after) else (before, after)

    def _overflow(self) -> None:
        self._full = True
        self._note(
            f"replay: {len(self._cache)} batches fill the cache of {self._limit} bytes; probes see those again and then the stream "
            "goes on (raise `replay_bytes`, or use a loader with state_dict such as torchdata's StatefulDataLoader)"
        )

    def _drop_cache(self) -> None:
        self._cache, self._cursor, self._bytes = [], 0, 0
        self._origin, self._starts, self._length = self._place(), [], 0

    def _place(self) -> dict[str, Any]:
        return {"epoch": self._epoch, "drawn": self._drawn, "rng": self._epoch_rng}

    # Going on in another process

    def state_dict(self) -> dict[str, Any]:
        """Where the stream stands: the epoch it came from, how far it was read, and what must be cached again."""
        return {
            "origin": dict(self._origin),
            "starts": list(self._starts),
            "length": self._length,
            "cached": [None if rng is None else rng[0] for _, rng in self._cache],
            "cursor": self._cursor,
            "recording": self._recording,
            "full": self._full,
            "marked": self._marked,
            "loader": copy.deepcopy(self._loader.state_dict()) if self._rewinds_itself else None,  # type: ignore[attr-defined]
        }

    def load_state_dict(self, values: dict[str, Any]) -> None:
        """Read the loader forward to where `state_dict` stood. The global random state is left as it was before the call."""
        now = self._rng.get()
        self._recording, self._full, self._marked = values["recording"], values["full"], values["marked"]
        if self._rewinds_itself:
            self._loader.load_state_dict(copy.deepcopy(values["loader"]))  # type: ignore[attr-defined]
            self._iterator = iter(self._loader)
        else:
            self._read_forward(values)
        self._cursor = values["cursor"]
        self._rng.set(now)

    def _read_forward(self, values: dict[str, Any]) -> None:
        origin = values["origin"]
        begun = origin["drawn"] > 0
        self._cache, self._bytes, self._iterator, self._drawn = [], 0, None, 0
        self._epoch = origin["epoch"] - begun
        self._forced = [*([origin["rng"]] if begun else []), *values["starts"]]
        for _ in range(origin["drawn"]):
            self._draw()
        self._origin, self._starts, self._length = dict(origin), [], 0
        for before in values["cached"]:
            if before is not None:
                self._rng.set(before)
            batch, rng = self._draw_watched()
            self._bytes += self._size(batch)
            self._cache.append((self._clone(batch), rng))
        while self._length < values["length"]:
            self._draw()
        self._forced = []
