"""The states that a session may go back to: snapshots of its host, and the places in the data that belong to them."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from autolrs.run.host import Host, Stream, Token


class Held:
    """The stage's beginning, the ends of probes that may be gone on from, a guard of the run, and its best state."""

    def __init__(self, host: Host, stream: Stream | None = None) -> None:
        self._host, self.stream = host, stream
        self.base: Token | None = None
        self.guard: Token | None = None
        self.best: Token | None = None
        self._ends: dict[int, tuple[Token, int]] = {}  # by the probe's index: token and position in the data

    @property
    def tokens(self) -> list[Token]:
        """All snapshots that may still be restored."""
        held = (self.base, self.guard, self.best, *(token for token, _ in self._ends.values()))
        return [token for token in held if token is not None]

    def __contains__(self, probe: object) -> bool:
        """Whether that probe's end is held."""
        return probe in self._ends

    def begin(self) -> None:
        """A stage begins here: its probes come back to this state."""
        self._release(self.base)
        self.base = None
        # Marking may begin an epoch, which draws random numbers: what it drew belongs to the snapshot.
        if self.stream is not None:
            self.stream.mark()
        self.base = self._host.snapshot()

    def back(self, probe: int | None = None) -> None:
        """Stand where the stage began, or where that probe ended."""
        token, position = (self.base, 0) if probe is None else self._ends[probe]
        assert token is not None
        # Rewinding may draw random numbers (a new iterator), so the random state is put back after it.
        if self.stream is not None:
            self.stream.rewind(position)
        self._host.restore(token)

    def keep_end(self, probe: int) -> None:
        """Hold the present state as that probe's end."""
        position = 0 if self.stream is None else self.stream.position()
        self._ends[probe] = (self._host.snapshot(), position)

    def keep_only(self, probes: Collection[int]) -> None:
        """Let go of the ends of all other probes."""
        for probe in [probe for probe in self._ends if probe not in probes]:
            self._release(self._ends.pop(probe)[0])

    def end_stage(self) -> None:
        """Nobody will come back to this stage's beginning, nor to the ends of its probes."""
        self._release(self.base)
        self.base = None
        self.keep_only(())

    def protect(self) -> None:
        """Guard the run: `undo` comes back to this state."""
        self.unprotect()
        self.guard = self._host.snapshot()

    def undo(self) -> None:
        """Stand where the guard was set; the data goes on, since what was seen need not be seen again."""
        assert self.guard is not None
        self._host.restore(self.guard)

    def unprotect(self) -> None:
        """What the guard protected has gone well, or was undone."""
        self._release(self.guard)
        self.guard = None

    def keep_best(self) -> None:
        """No state was better than this one."""
        self._release(self.best)  # first, so that its memory serves again
        self.best = None
        self.best = self._host.snapshot()

    def _release(self, token: Token | None) -> None:
        if token is not None:
            self._host.release(token)

    def to_json(self) -> dict[str, Any]:
        """Which tokens are what; the snapshots themselves are the host's to save."""
        ends = {str(probe): list(end) for probe, end in self._ends.items()}
        return {"base": self.base, "guard": self.guard, "best": self.best, "kept": ends}

    def load(self, values: dict[str, Any]) -> None:
        """Hold what `to_json` named, on a host that has those snapshots under the same tokens."""
        self.base, self.guard, self.best = values["base"], values["guard"], values.get("best")
        self._ends = {int(probe): (end[0], end[1]) for probe, end in values["kept"].items()}
