"""What a run is doing right now, for the demo: a live picture in a terminal, plain lines anywhere else.

Both only look at the session and its events; neither can change the run.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Protocol

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from autolrs.cli.common import clock, number, sparkline, table
from autolrs.core import curriculum, search
from autolrs.core.engine import State
from autolrs.core.settings import Settings
from autolrs.core.types import Aborted, Asked, Commit, Committed, Event, Noted, Probe, Probed, Ranged, profile_steps
from autolrs.report.info import is_sweep
from autolrs.run.session import Session

_REFRESH = 0.1  # seconds


class View(Protocol):
    """Told of every event and every step."""

    def __enter__(self) -> View: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
    def on_event(self, event: Event) -> None:
        """An event was recorded."""

    def on_step(self, loss: float) -> None:
        """A step was taken."""


def view_of(session: Session, out: Console, title: str) -> View:
    """The live picture if `out` is a terminal, else plain lines."""
    return LiveView(session, out, title) if out.is_terminal else PlainView(session, out)


class PlainView:
    """One line per probe and per stage."""

    def __init__(self, session: Session, out: Console) -> None:
        self._session, self._out = session, out
        self._sweeps = _Sweeps(session)

    def __enter__(self) -> PlainView:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    def on_step(self, loss: float) -> None:
        """Nothing to say about a single step."""

    def on_event(self, event: Event) -> None:
        """One line where there is news."""
        self._sweeps.watch(event)
        line = event_line(event, self._session.state, sweep=self._sweeps.of(event))
        if line:
            self._out.print(line, markup=False, soft_wrap=True)


class _Sweeps:
    """Which probes go through many LRs and stand for none: only the command says so, not the answer."""

    def __init__(self, session: Session) -> None:
        self.seen: set[tuple[int, int]] = set()
        if isinstance(session.command, Probe):
            self.watch(Asked(session.command))

    def watch(self, event: Event) -> None:
        if isinstance(event, Asked) and isinstance(event.command, Probe) and is_sweep(event.command.profile):
            self.seen.add((event.command.stage, event.command.index))

    def of(self, event: Event) -> bool:
        return isinstance(event, (Probed, Aborted)) and (event.stage, event.index) in self.seen


def event_line(event: Event, state: State, *, sweep: bool = False) -> str | None:
    """An event in one line; None for those that are no news. `state` is the one after it."""
    if sweep and isinstance(event, (Probed, Aborted)):
        return f"{event.steps} steps through the LRs up to {number(event.lr)}"
    if isinstance(event, Ranged):
        return f"range test: search {number(event.lr_min)} to {number(event.lr_max)} ({event.note})"
    if isinstance(event, Probed):
        if event.stage < 0:
            return None
        line = f"{_of(event, state)}  LR {event.lr:<9.3g}  loss "
        if len(event.losses) == 1:
            return line + number(event.losses[0])
        course = f"{number(event.losses[0])} > {number(event.losses[-1])}"
        return f"{line}{course}  forecast {number(event.forecast.value)}"
    if isinstance(event, Aborted):
        return None if event.stage < 0 else f"{_of(event, state)}  LR {event.lr:<9.3g}  stopped: {event.reason}"
    if isinstance(event, Committed):
        loss = f", loss {number(event.losses[-1])}" if event.losses else ""
        cost = f"cost so far {state.raw_steps / max(1, state.committed_steps):.2f} x"
        name = "warm-up" if event.stage < 0 else f"stage {event.stage}"
        lr = _lr_words(event.profile[0].lr_start, event.profile[-1].lr_end)
        return f"{name}: {profile_steps(event.profile):,} steps at LR {lr}{loss}; {cost}"
    if isinstance(event, Noted):
        return f"note: {event.message}"
    return None


def _of(event: Probed | Aborted, state: State) -> str:
    count = stage_probes(state)
    of = "" if count is None else f"/{count}"
    return f"stage {event.stage} probe {event.index + 1}{of}"


def _lr_words(start: float, end: float) -> str:
    return number(start) if start == end else f"{number(start)} > {number(end)}"


class LiveView:
    """Stage, probe, losses, forecasts, schedule, cost and time left, redrawn ten times a second."""

    def __init__(
        self, session: Session, out: Console, title: str, now: Callable[[], float] = time.perf_counter
    ) -> None:
        self._session, self._title, self._now = session, title, now
        self._losses: list[float] = []
        self._command, self._sweeps = session.command, _Sweeps(session)
        self._begun, self._drawn = now(), 0.0
        self._live = Live(console=out, auto_refresh=False)

    def __enter__(self) -> LiveView:
        self._live.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.update(self.render(), refresh=True)
        self._live.__exit__(kind, error, trace)

    def on_event(self, event: Event) -> None:
        """Drawn with the next step."""
        self._sweeps.watch(event)

    def on_step(self, loss: float) -> None:
        """Redraw if it is time."""
        if self._session.command is not self._command:
            self._command, self._losses = self._session.command, []
        else:
            self._losses.append(loss)
        now = self._now()
        if now - self._drawn >= _REFRESH:
            self._drawn = now
            self._live.update(self.render(), refresh=True)

    def render(self) -> RenderableType:
        """The picture at this moment."""
        state = self._session.state
        parts: list[RenderableType] = [self._now_line(), Text(self._losses_line(), style="cyan"), Text("")]
        parts += [_probe_table(state, self._sweeps), Text(""), _schedule_line(state), self._progress()]
        return Panel(Group(*parts), title=self._title, title_align="left", border_style="dim")

    def _now_line(self) -> Text:
        command, state = self._session.command, self._session.state
        if isinstance(command, Probe):
            count = stage_probes(state)
            of = "" if count is None else f" of {count}"
            stage = "range test" if command.stage < 0 else f"stage {command.stage}"
            sweeping = is_sweep(command.profile)
            what = "through the LRs" if sweeping else f"probe {command.index + 1}{of}, judged by {command.metric} loss"
            return Text.assemble((stage, "bold"), f"  {what}  ", (f"LR {self._session.lr:.3g}", "bold cyan"))
        if isinstance(command, Commit):
            done, steps = self._session.command_steps, profile_steps(command.profile)
            stage = "warm-up" if command.stage < 0 else f"stage {command.stage}"
            lr = (f"LR {self._session.lr:.3g}", "bold green")
            return Text.assemble((stage, "bold"), f"  training for good, {done:,} of {steps:,} steps  ", lr)
        return Text("finished", style="bold green")

    def _losses_line(self) -> str:
        last = f"  {self._losses[-1]:.3g}" if self._losses else ""
        return "loss  " + sparkline(self._losses, 48) + last

    def _progress(self) -> RenderableType:
        session = self._session
        total = session.state.settings.total_steps or 1
        committed, raw = session.committed_steps, session.raw_steps
        cost = f"cost {raw / committed:.2f} x" if session.state.committed_steps else "cost -"
        elapsed = self._now() - self._begun
        left = max(0.0, planned_steps(session.state) - raw) * elapsed / raw if raw else 0.0
        line = Table.grid(padding=(0, 2, 0, 0))
        line.add_row(
            Text(f"{committed:,}/{total:,} steps"),
            ProgressBar(total=total, completed=committed, width=28),
            Text(cost),
            Text(f"{clock(elapsed)} gone, about {clock(left)} left" if not session.done else f"took {clock(elapsed)}"),
        )
        return line


def _probe_table(state: State, sweeps: _Sweeps) -> Table:
    """This stage's answers, the best by the posterior marked; a line for each probe to come, so that nothing jumps."""
    rows = table(">LR", "losses", ">forecast", "")
    answers = [probe for probe in state.probes if probe.stage >= 0 and not sweeps.of(probe)]
    best = best_so_far(state.settings, answers)
    for probe in answers[-12:]:
        forecast = probe.forecast.value if isinstance(probe, Probed) else math.inf
        style = "bold green" if probe.index == best else ""
        value = number(forecast) if math.isfinite(forecast) else "diverged" if isinstance(probe, Probed) else "stopped"
        mark = "< best so far" if probe.index == best else ""
        rows.add_row(number(probe.lr), sparkline(probe.losses, 32), value, mark, style=style)
    for _ in range((stage_probes(state) or 0) - len(answers)):
        rows.add_row("", "", "", "")
    return rows


def _schedule_line(state: State) -> Text:
    done = [f"{_lr_words(s.lr_start, s.lr_end)} x {s.steps}" for s in state.segments]
    return Text("schedule  " + ("   ".join(done[-6:]) or "-"), style="dim", no_wrap=True, overflow="ellipsis")


def best_so_far(settings: Settings, answers: Sequence[Probed | Aborted]) -> int | None:
    """Index of the probe that would win this stage now."""
    finite = [p for p in answers if isinstance(p, Probed) and math.isfinite(p.forecast.value)]
    if not finite:
        return None
    if settings.strategy == "paper":
        return finite[search.pick(settings, [(p.lr, p.forecast.value) for p in finite])].index
    return min(finite, key=lambda p: p.forecast.value).index


def stage_probes(state: State) -> int | None:
    """How many probes this stage has; None where only the strategy knows."""
    if state.settings.strategy != "paper":
        return None
    return _plan(state, state.stage, state.committed_steps).n_probes if state.steps_left != 0 else 0


def planned_steps(state: State) -> float:
    """All steps the run will have taken at its end, as far as that can be known."""
    settings = state.settings
    if settings.total_steps is None:
        return float(state.raw_steps)
    if settings.strategy != "paper":
        searched = state.raw_steps - state.committed_steps
        budget = (getattr(settings, "max_cost", 1.15) - 1.0) * settings.total_steps
        return settings.total_steps + (searched if state.committed_steps else max(budget, searched))
    steps, committed, index = float(settings.total_steps), settings.warmup_steps, 0
    if settings.lr == "auto":
        steps += settings.range_steps
    while committed < settings.warmup_steps + settings.searched_steps:
        stage = _plan(state, index, committed)
        steps += (stage.n_probes - _kept(settings, stage)) * stage.probe_steps
        committed, index = committed + stage.steps, index + 1
    return steps


def _kept(settings: Settings, stage: curriculum.Stage) -> int:
    """Probes whose steps are not thrown away."""
    return 1 if settings.keep_winner and stage.n_probes else 0


def _plan(state: State, index: int, committed: int) -> curriculum.Stage:
    return curriculum.plan(state.settings, index, committed, validation=state.validation)
