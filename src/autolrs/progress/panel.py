"""A moment of a run as a picture in the terminal: stage, probe, losses, forecasts, schedule, cost and time left."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from autolrs.core.engine import State
from autolrs.core.interval import is_sweep
from autolrs.core.types import Commit, Probe, Probed, profile_steps
from autolrs.progress.words import best_so_far, clock, lr_words, number, planned_steps, sparkline, stage_probes
from autolrs.run.session import Session


@dataclass(frozen=True)
class Moment:
    """All that the picture shows. `command_steps` is None where only the command is known, as from a journal."""

    state: State
    command: Probe | Commit | None
    lr: float
    command_steps: int | None
    committed: int
    raw: int

    @classmethod
    def of(cls, session: Session) -> Moment:
        """What a session is doing now."""
        done, steps = session.committed_steps, session.raw_steps
        return cls(session.state, session.command, session.lr, session.command_steps, done, steps)


def picture(moment: Moment, title: str, *, losses: Sequence[float], elapsed: float, news: str = "") -> RenderableType:
    """The picture; `losses` are those of the command under way, `elapsed` seconds since the start."""
    state = moment.state
    last = f"  {losses[-1]:.3g}" if losses else ""
    parts: list[RenderableType] = [_now(moment)]
    if losses:
        parts.append(Text("loss  " + sparkline(losses, 48) + last, style="cyan"))
    parts += [Text(""), _probes(state), Text(""), _schedule(state), _progress(moment, elapsed)]
    if news:
        parts.append(Text(news, style="dim"))
    return Panel(Group(*parts), title=title, title_align="left", border_style="dim")


def table(*columns: str, title: str | None = None) -> Table:
    """A table in the house style; a column name that begins with '>' is set to the right."""
    made = Table(title=title, title_justify="left", title_style="bold", header_style="bold", box=None, pad_edge=False)
    made.padding = (0, 2, 0, 0)
    for column in columns:
        made.add_column(column.lstrip(">"), justify="right" if column.startswith(">") else "left", no_wrap=True)
    return made


def _now(moment: Moment) -> Text:
    command, state = moment.command, moment.state
    if isinstance(command, Probe):
        count = stage_probes(state)
        of = "" if count is None else f" of {count}"
        stage = "range test" if command.stage < 0 else f"stage {command.stage}"
        sweeping = is_sweep(command.profile)
        what = "through the LRs" if sweeping else f"probe {command.index + 1}{of}, judged by {command.metric} loss"
        return Text.assemble((stage, "bold"), f"  {what}  ", (f"LR {moment.lr:.3g}", "bold cyan"))
    if isinstance(command, Commit):
        done = "" if moment.command_steps is None else f"{moment.command_steps:,} of "
        stage = "warm-up" if command.stage < 0 else f"stage {command.stage}"
        what = f"  training for good, {done}{profile_steps(command.profile):,} steps  "
        return Text.assemble((stage, "bold"), what, (f"LR {moment.lr:.3g}", "bold green"))
    return Text("finished", style="bold green")


def _progress(moment: Moment, elapsed: float) -> RenderableType:
    state, raw = moment.state, moment.raw
    total = state.settings.total_steps
    cost = f"cost {raw / moment.committed:.2f} x" if state.committed_steps else "cost -"
    left = max(0.0, planned_steps(state) - raw) * elapsed / raw if raw else 0.0
    time = f"took {clock(elapsed)}"
    if state.finished is None:
        time = f"{clock(elapsed)} gone" + ("" if total is None else f", about {clock(left)} left")
    line = Table.grid(padding=(0, 2, 0, 0))
    of = "" if total is None else f"/{total:,}"
    bar = ProgressBar(total=total or 1, completed=moment.committed, width=28)
    line.add_row(Text(f"{moment.committed:,}{of} steps"), *([bar] if total else []), Text(cost), Text(time))
    return line


def _probes(state: State) -> Table:
    """This stage's answers, the best by the posterior marked; a line for each probe to come, so that nothing jumps."""
    rows = table(">LR", "losses", ">forecast", "")
    answers = [probe for probe in state.probes if probe.stage >= 0 and not probe.sweep]
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


def _schedule(state: State) -> Text:
    done = [f"{lr_words(s.lr_start, s.lr_end)} x {s.steps}" for s in state.segments]
    return Text("schedule  " + ("   ".join(done[-6:]) or "-"), style="dim", no_wrap=True, overflow="ellipsis")
