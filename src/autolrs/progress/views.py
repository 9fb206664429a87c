"""Views of a session under way: a live picture in a terminal, plain lines anywhere else (pipes, log files, notebooks).

They only look at the session and its events; neither can change the run. A loss is read from its device when a picture
is drawn, at most ten times a second, and never for plain lines.
"""

from __future__ import annotations

import sys
import time
import weakref
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TextIO

from autolrs.core.types import Event, Finished
from autolrs.progress.words import event_line
from autolrs.run.session import Session
from autolrs.run.steps import StepInfo

_REFRESH = 0.1  # seconds

Read = Callable[[Sequence[Any]], list[float]]


class View(Protocol):
    """Told of every event and every step."""

    def on_event(self, event: Event) -> None:
        """An event was recorded."""

    def on_step(self, loss: Any) -> None:
        """A step was taken."""

    def close(self) -> None:
        """Leave the terminal as it was."""


def watched(session: Session, read: Read, view: View | None = None) -> Callable[[Any], StepInfo]:
    """`session.step` with a view beside it, which is closed when the run ends or the session goes away."""
    seen = view_of(session, read) if view is None else view
    step, on_step = session.step, seen.on_step
    session.listeners.append(seen.on_event)
    weakref.finalize(session, seen.close)

    def watched_step(loss: Any) -> StepInfo:
        info = step(loss)
        on_step(loss)
        return info

    return watched_step


def view_of(session: Session, read: Read, out: TextIO | None = None) -> View:
    """The live picture if `out` (standard output) is a terminal and rich is there, else plain lines."""
    file = sys.stdout if out is None else out
    try:
        from rich.console import Console
    except ImportError:
        return PlainView(session, file)
    console = Console(file=file, highlight=False)
    if not console.is_terminal or console.is_dumb_terminal:  # a notebook is none either
        return PlainView(session, file)
    return LiveView(session, read, console)


class PlainView:
    """One line per probe and per stage."""

    def __init__(self, session: Session, out: TextIO) -> None:
        self._session, self._out = weakref.proxy(session), out

    def on_step(self, loss: Any) -> None:
        """Nothing to say about a single step."""

    def on_event(self, event: Event) -> None:
        """One line where there is news."""
        line = event_line(event, self._session.state)
        if line:
            print(line, file=self._out, flush=True)

    def close(self) -> None:
        """Nothing was changed."""


class LiveView:
    """The picture of `panel`, redrawn ten times a second while steps are taken."""

    def __init__(
        self, session: Session, read: Read, console: Any, *, now: Callable[[], float] = time.perf_counter
    ) -> None:
        from rich.live import Live

        self._session, self._read, self._now = weakref.proxy(session), read, now
        settings = session.state.settings
        steps = "" if settings.total_steps is None else f", {settings.total_steps:,} steps"
        self._title = f"autolrs: {settings.strategy}{steps}"
        self._losses: list[float] = []
        self._command = session.command
        self._begun, self._drawn = now(), -_REFRESH
        self._live = Live(console=console, auto_refresh=False)
        self._open = False

    def on_event(self, event: Event) -> None:
        """Drawn with the next step; the last event closes the picture."""
        if isinstance(event, Finished):
            self._draw()
            self.close()

    def on_step(self, loss: Any) -> None:
        """Redraw if it is time."""
        now = self._now()
        if now - self._drawn < _REFRESH:
            return
        self._drawn = now
        if self._session.command is not self._command:
            self._command, self._losses = self._session.command, []
        else:
            self._losses += self._read([loss])
        if not self._session.done:
            self._draw()

    def render(self) -> Any:
        """The picture at this moment."""
        from autolrs.progress.panel import Moment, picture

        elapsed = self._now() - self._begun
        return picture(Moment.of(self._session), self._title, losses=self._losses, elapsed=elapsed)

    def close(self) -> None:
        """Give the terminal back; the last picture stays."""
        if self._open:
            self._open = False
            self._live.stop()

    def _draw(self) -> None:
        if not self._open:
            self._open = True
            self._live.start()
        self._live.update(self.render(), refresh=True)
