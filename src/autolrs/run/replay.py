"""Batches from a loader, epoch after epoch, that can go back to a mark so that all probes of a stage see the same ones.

A loader with `state_dict`/`load_state_dict` (torchdata's StatefulDataLoader) is rewound itself. Any other has its
batches cached from the mark on, up to a limit in bytes; past it the stream goes on, and a note says so. Random numbers
that fetching a batch draws are drawn again on replay, so that a run with probes sees just what one without them would.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol


class Rng(Protocol):
    """The random state that fetching a batch may draw from."""

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
        self.loader, self._rng = loader, rng
        self._limit, self._size, self._clone, self._note = limit, size, clone, note
        # Accelerate's loaders have these methods whether or not what they wrap has: they are read like any other.
        self._rewinds_itself = (
            hasattr(loader, "state_dict")
            and hasattr(loader, "load_state_dict")
            and not hasattr(loader, "use_stateful_dataloader")
        )
        self._replay = replay
        self.recording = False  # from a mark until it is forgotten
        self._iterator: Iterator[Any] | None = None
        self._epoch = 0  # epochs begun
        self._drawn = 0  # batches drawn from the epoch under way
        self._cursor = 0  # batches given out since the mark
        self._places: dict[int, Any] = {}  # of a loader that rewinds itself: its own state, by cursor
        self._cache: list[tuple[Any, Any]] = []  # (batch, random states around drawing it if that changed them)
        self._bytes, self._full = 0, False
        # The way back here from a new process: read on from the start of an epoch, with these random states.
        self._since = 0  # that epoch
        self._starts: list[Any] = []  # random states before it and before each epoch after it
        self._length = 0  # batches drawn since
        self._lead = 0  # of those, batches before the first that is cached
        self._forced: list[Any] = []  # random states for the epochs to begin, while reading on

    def next(self) -> Any:
        """The next batch: from the cache as long as it lasts, then from the loader."""
        if self._cursor < len(self._cache):
            batch, rng = self._cache[self._cursor]
            self._cursor += 1
            if rng is not None:
                self._rng.set(rng[1])
            if self.recording:
                return self._clone(batch)
            if self._cursor == len(self._cache):
                self._drop_cache()
            return batch
        self._cursor += 1
        if not self.recording or self._rewinds_itself or self._full:
            return self._draw()
        batch, rng = self._draw_watched()
        if self._bytes + self._size(batch) > self._limit:
            self._overflow()
        else:
            self._store(batch, rng)
        return batch

    # Stream

    def mark(self) -> None:
        """Remember this position; record from here on."""
        self.recording = self._replay
        if self._rewinds_itself:
            if self._iterator is None:
                self._begin_epoch()
            self._places, self._cursor = {0: self._place()}, 0
            return
        rest = self._cache[self._cursor :]
        if rest:
            self._lead += self._cursor
        else:
            self._settle()
        self._cache, self._cursor, self._full = rest, 0, False
        self._bytes = sum(self._size(batch) for batch, _ in rest)

    def position(self) -> int:
        """Batches given out since the mark; the position can be rewound to."""
        if self._rewinds_itself:
            self._places[self._cursor] = self._place()
        return self._cursor

    def rewind(self, position: int = 0) -> None:
        """Back to the mark, or to a position after it."""
        if self._rewinds_itself:
            if position in self._places:  # or else it is of a loader that was replaced, and the stream goes on
                self._go_to(self._places[position])
            self._cursor = position
        else:
            # Past a full cache the stream has gone on: that position cannot be had again, and the note said so.
            self._cursor = min(position, len(self._cache))

    def forget(self) -> None:
        """The mark is not needed any more: give out what is cached and record nothing."""
        self.recording = False
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
                if self._drawn == 0:
                    break
                self._iterator, self._drawn = None, 0
                continue
            self._drawn += 1
            self._length += 1
            return batch
        if self._epoch <= 1:
            raise ValueError("the loader gave no batch: it is empty")
        raise ValueError(
            f"the loader gave no batch in epoch {self._epoch}: "
            "it must start anew each time it is iterated (a generator does not)"
        )

    def _begin_epoch(self) -> None:
        if self._forced:
            self._rng.set(self._forced.pop(0))
        if not self._cache:
            self._since, self._starts, self._length = self._epoch, [], 0
        self._announce(self._epoch)
        self._starts.append(self._rng.get())
        self._iterator = iter(self.loader)
        self._epoch += 1

    def _announce(self, epoch: int) -> None:
        """Tell the epoch to whatever shuffles by it: a DistributedSampler, also in a batch sampler, or a dataset."""
        inner = getattr(self.loader, "batch_sampler", None)
        owners = (getattr(self.loader, "sampler", None), inner, getattr(inner, "sampler", None))
        told: list[Any] = []
        for owner in (self.loader, *owners, getattr(self.loader, "dataset", None)):
            set_epoch = getattr(owner, "set_epoch", None)
            if set_epoch is not None and not any(owner is other for other in told):
                set_epoch(epoch)
                told.append(owner)

    def _draw_watched(self) -> tuple[Any, Any]:
        """A batch, and the random states before and after drawing it if that changed them."""
        before = self._rng.get()
        batch = self._draw()
        after = self._rng.get()
        return batch, None if self._rng.same(before, after) else (before, after)

    def _store(self, batch: Any, rng: Any) -> None:
        if not self._cache:
            self._lead = self._length - 1
        self._bytes += self._size(batch)
        self._cache.append((self._clone(batch), rng))

    def _overflow(self) -> None:
        self._full = True
        self._note(
            f"replay: {len(self._cache)} batches fill the cache of {self._limit} bytes; probes see those again and "
            "then the stream goes on (raise `replay_bytes`, or use a loader with state_dict such as torchdata's "
            "StatefulDataLoader)"
        )

    def _drop_cache(self) -> None:
        self._cache, self._cursor, self._bytes = [], 0, 0
        self._settle()

    def _settle(self) -> None:
        """Epochs before the one under way are not needed any more to come back here."""
        begun = self._iterator is not None
        self._since, self._starts = self._epoch - begun, self._starts[-1:] if begun else []
        self._length = self._drawn

    def _place(self) -> dict[str, Any]:
        state = copy.deepcopy(self.loader.state_dict())  # type: ignore[attr-defined]
        return {"loader": state, "epoch": self._epoch, "drawn": self._drawn, "rng": self._rng.get()}

    def _go_to(self, place: dict[str, Any]) -> None:
        self._epoch, self._drawn = place["epoch"], place["drawn"]
        self._announce(self._epoch - 1)
        self.loader.load_state_dict(copy.deepcopy(place["loader"]))  # type: ignore[attr-defined]
        self._iterator = iter(self.loader)
        self._rng.set(place["rng"])  # making an iterator draws, also from a generator of the loader's own

    # Going on in another process

    def state_dict(self) -> dict[str, Any]:
        """Where the stream stands: the epoch it came from, how far it was read, and what must be cached again."""
        return {
            "rng": self._rng.get(),
            "cursor": self._cursor,
            "recording": self.recording,
            "full": self._full,
            "places": self._places,
            # Asking a loader that was not begun for its state would begin it.
            "place": self._place() if self._rewinds_itself and self._iterator is not None else None,
            "since": self._since,
            "starts": list(self._starts),
            "lead": self._lead if self._cache else self._length,
            "cached": [None if rng is None else rng[0] for _, rng in self._cache],
            "length": self._length,
        }

    def load_state_dict(self, values: dict[str, Any]) -> None:
        """Bring the loader, and the random state, to where they stood at `state_dict`."""
        self._places, self._full = dict(values["places"]), values["full"]
        if self._rewinds_itself:
            if values["place"] is not None:
                self._go_to(values["place"])
            elif values["length"]:
                raise ValueError("the checkpoint is of another loader: of one without state_dict")
            else:
                self._epoch = values["since"]
        else:
            self._read_forward(values)
        self._cursor, self.recording = values["cursor"], values["recording"]
        if values["rng"] is not None:
            self._rng.set(values["rng"])

    def _read_forward(self, values: dict[str, Any]) -> None:
        self._cache, self._bytes, self._iterator, self._drawn = [], 0, None, 0
        self._epoch, self._forced = values["since"], list(values["starts"])
        for _ in range(values["lead"]):
            self._draw()
        for before in values["cached"]:
            if before is not None:
                self._rng.set(before)
            self._store(*self._draw_watched())
        for _ in range(values["length"] - values["lead"] - len(values["cached"])):
            self._draw()
        self._forced = []


def from_epoch_start(values: dict[str, Any]) -> dict[str, Any]:
    """A stream's `state_dict` moved back to the start of its epoch, for a loader whose shards are others now."""
    place = values["place"]
    epoch = max(values["since"] + len(values["starts"]), place["epoch"] if place else 0) - 1
    nothing: dict[str, Any] = {"rng": None, "cursor": 0, "recording": False, "full": False, "places": {}, "place": None}
    return {**nothing, "since": max(epoch, 0), "starts": [], "lead": 0, "cached": [], "length": 0}
