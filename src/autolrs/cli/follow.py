"""`autolrs show RUN --follow`: watch a run through its journal, from another process or over a mounted folder."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from rich.console import Console, RenderableType
from rich.live import Live
from rich.markup import escape

from autolrs.cli.common import fail, read_run
from autolrs.core import engine
from autolrs.core.engine import State
from autolrs.core.types import Continued, Event, Resumed, peak_lr
from autolrs.progress.panel import Moment, picture
from autolrs.progress.words import event_line
from autolrs.run import journal

_EARLIER = 12  # lines about what happened before one came


class Follower:
    """The state after each event of a journal that grows."""

    def __init__(self) -> None:
        self._seen = 0
        self._states: list[State] = []  # after each event that still counts

    @property
    def state(self) -> State:
        """The state now."""
        return self._states[-1]

    def news(self, events: Sequence[Event]) -> list[str]:
        """Lines about those of `events` (all of the journal) that were not there before."""
        lines = []
        for event in events[self._seen :]:
            if isinstance(event, Resumed):
                del self._states[event.at :]
                lines.append(f"resumed after {self.state.committed_steps:,} committed steps")
                continue
            fresh = not self._states or isinstance(event, Continued)
            after = engine.evolve(None if fresh else self.state, event)
            self._states = [after] if fresh else [*self._states, after]
            lines += [event_line(event, after) or ""]
        self._seen = len(events)
        return [line for line in lines if line]

    def moment(self) -> Moment:
        """What is known of the present: the command under way, not how far it is."""
        state = self.state
        command = state.outstanding[-1] if state.outstanding else state.committing
        lr = peak_lr(command.profile) if command is not None else 0.0
        return Moment(state, command, lr, None, state.committed_steps, state.raw_steps)


def follow(run: Path, out: Console, every: float = 1.0, sleep: Callable[[float], None] = time.sleep) -> None:
    """Tell what happens until the run is finished or Ctrl+C is pressed."""
    follower, stamp = Follower(), None
    lines = follower.news(read_run(run))
    hidden = len(lines) - _EARLIER
    if hidden > 0:
        lines = [f"({hidden} earlier lines: autolrs show {run})", *lines[-_EARLIER:]]
    live = Live(console=out, auto_refresh=False) if out.is_terminal else None
    if live is not None:
        live.start()
    try:
        while True:
            for line in lines:
                out.print(escape(line), soft_wrap=True)
            if live is not None:
                live.update(_drawn(run, follower), refresh=True)
            if follower.state.finished is not None:
                out.print(escape(f"finished: {follower.state.finished}"), soft_wrap=True)
                return
            sleep(every)
            now = _stamp(run)
            lines = follower.news(read_run(run)) if now not in (stamp, None) else []
            stamp = now or stamp
    except KeyboardInterrupt:
        out.print("left; the run is not touched")
    except ValueError as error:  # an event that does not fit what came before
        fail(f"{run}: {error}")
    finally:
        if live is not None:
            live.stop()


def _stamp(run: Path) -> tuple[int, int] | None:
    """Changes when the journal does; None while a mounted folder does not answer."""
    try:
        found = (run / journal.NAME if run.is_dir() else run).stat()
    except OSError:
        return None
    return found.st_size, found.st_mtime_ns


def _drawn(run: Path, follower: Follower) -> RenderableType:
    times = journal.times(run)
    ago = max(0.0, time.time() - times[-1])
    title = f"{run}: {follower.state.settings.strategy}"
    news = f"last record {ago:,.0f} s ago" if follower.state.finished is None else ""
    return picture(follower.moment(), title, losses=(), elapsed=times[-1] - times[0], news=news)
