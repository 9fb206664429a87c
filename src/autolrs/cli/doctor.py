"""`autolrs doctor RUN`: replays a journal and checks that it tells one consistent story.

Decisions remade by other versions may differ in the last digits, so those are warnings; what contradicts itself is a
failure.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import typer
from rich.markup import escape

from autolrs import __version__
from autolrs.cli.common import Run, console, fail
from autolrs.core import engine, strategies
from autolrs.core.engine import State, Strategy
from autolrs.core.schedule import Schedule
from autolrs.core.types import Asked, Commit, Event, Finish, Probe, Probed, Started, Wait, peak_lr, profile_steps
from autolrs.run import journal

Verdict = Literal["ok", "warning", "failed", "skipped"]
_MARKS = {
    "ok": "[green]ok[/]",
    "warning": "[yellow]warning[/]",
    "failed": "[red]failed[/]",
    "skipped": "[dim]skipped[/]",
}
_SLACK = 1e-9


@dataclass(frozen=True)
class Check:
    """One line of the list."""

    name: str
    verdict: Verdict
    detail: str = ""


def doctor(run: Run) -> None:
    """Replay a run's journal and check it. Exit code 1 if something is wrong with it.

    \b
    Examples:
      autolrs doctor runs/demo
      autolrs doctor runs/demo && autolrs export runs/demo --to torch
    """
    if not run.exists():
        fail(f"{run} does not exist")
    checks = list(examine(run))
    out = console()
    for check in checks:
        detail = f"  [dim]{escape(check.detail)}[/]" if check.detail else ""
        out.print(f"{_MARKS[check.verdict]}{' ' * (8 - len(check.verdict))} {check.name}{detail}")
    failed = sum(check.verdict == "failed" for check in checks)
    warned = sum(check.verdict == "warning" for check in checks)
    if failed:
        fail(f"{run}: {failed} of {len(checks)} checks failed")
    out.print(f"\nthe journal is sound ({warned} warning{'' if warned == 1 else 's'})")
    raise typer.Exit(0)


def examine(run: Path) -> Iterator[Check]:
    """All checks that the state of the journal allows."""
    path = run / journal.NAME if run.is_dir() else run
    try:
        events = journal.read(path)
    except (journal.JournalError, OSError) as error:
        yield Check("journal can be read", "failed", str(error))
        return
    yield Check("journal can be read", "ok", f"{len(events)} events")
    torn = not path.read_bytes().endswith(b"\n")
    yield Check("last line is whole", "warning" if torn else "ok", "torn by a kill; it does not count" if torn else "")
    if not events:
        yield Check("run began", "failed", "the journal has no Started event")
        return
    try:
        kept = engine.history(events)
        states = list(_states(kept))
    except (ValueError, TypeError, KeyError) as error:
        yield Check("events fit together", "failed", str(error))
        return
    yield Check(
        "events fit together", "ok", f"{len(events) - len(kept)} undone by restarts" if len(events) > len(kept) else ""
    )
    final = states[-1]
    yield _answered(final)
    yield _steps(final)
    yield _within(kept, states)
    strategy = _strategy(final)
    if strategy is None:
        yield Check("forecasts and decisions", "skipped", f"strategy {final.settings.strategy!r} is not one of autolrs")
    else:
        same = _same_version(kept[0])
        yield _forecasts(kept, states, strategy, same)
        yield _decisions(kept, states, strategy)
    yield from _schedule_file(path.parent, final)


def _states(events: Sequence[Event]) -> Iterator[State]:
    """The state after each event."""
    state: State | None = None
    for number, event in enumerate(events, start=1):
        try:
            state = engine.evolve(state, event)
        except (ValueError, TypeError, KeyError) as error:
            raise ValueError(f"event {number} ({type(event).__name__}): {error}") from error
        yield state


def _answered(final: State) -> Check:
    name = "every command was answered"
    open_ = len(final.outstanding) + (final.committing is not None)
    if not open_:
        return Check(name, "ok")
    if final.finished is not None:
        return Check(name, "failed", f"{open_} asked and never answered, though the run finished")
    if open_ > final.settings.parallel:
        return Check(name, "failed", f"{open_} are open; at most {final.settings.parallel} can be")
    return Check(name, "ok", f"{open_} still under way: the run is not finished")


def _steps(final: State) -> Check:
    name = "committed steps add up"
    committed, total = final.committed_steps, final.settings.total_steps
    scheduled = profile_steps(final.segments)
    if committed != scheduled:
        return Check(name, "failed", f"{committed} counted, {scheduled} in the schedule")
    if total is not None and (committed > total or (final.finished is not None and committed != total)):
        return Check(name, "failed", f"{committed} committed, total_steps is {total}")
    of = "" if total is None else f" of {total:,}"
    return Check(name, "ok", f"{committed:,}{of}")


def _within(events: Sequence[Event], states: Sequence[State]) -> Check:
    """Every probe and constant stage lies in the interval; warm-up and range test are outside the search.

    A stretch whose LR moves may end below it (a decay to 0), never above.
    """
    name, count = "LRs lie in the interval", 0
    for event, state in zip(events, states, strict=True):
        if not isinstance(event, Asked) or event.command.stage < 0 or state.interval is None:
            continue
        low, high = state.interval
        lr = peak_lr(event.command.profile)
        moves = isinstance(event.command, Commit) and any(s.lr_start != s.lr_end for s in event.command.profile)
        if not (0.0 if moves else low * (1 - _SLACK)) <= lr <= high * (1 + _SLACK):
            what = type(event.command).__name__.lower()
            return Check(
                name, "failed", f"{what} of stage {event.command.stage} at {lr:.6g}, interval {low:.6g} to {high:.6g}"
            )
        count += 1
    return Check(name, "ok", f"{count} commands")


def _strategy(final: State) -> Strategy | None:
    name = final.settings.strategy
    return strategies.get(name) if name in strategies.STRATEGIES else None


def _same_version(started: Event) -> bool:
    return isinstance(started, Started) and started.versions.get("autolrs", __version__) == __version__


def _forecasts(events: Sequence[Event], states: Sequence[State], strategy: Strategy, same_version: bool) -> Check:
    """Forecasts made again from the recorded losses. Those have 9 digits, so the value may differ in the last ones."""
    name, count, thinned, wrong = "forecasts follow from the losses", 0, 0, []
    for before, event in zip(states, events[1:], strict=False):
        if not isinstance(event, Probed):
            continue
        probe = _asked_probe(before, event)
        every = probe.eval_every if probe.metric == "validation" else 1
        if len(event.losses) != event.steps // every:
            thinned += 1
            continue
        count += 1
        again = strategy.judge(before, probe, list(event.losses))
        if not _close(again.value, event.forecast.value, event.losses):
            wrong.append(
                f"stage {event.stage} probe {event.index}: recorded {event.forecast.value:.6g}, again {again.value:.6g}"
            )
    if wrong:
        more = f" and {len(wrong) - 1} more" if len(wrong) > 1 else ""
        other = "" if same_version else " (recorded by another version of autolrs)"
        return Check(name, "failed" if same_version else "warning", wrong[0] + more + other)
    return Check(name, "ok", f"{count} made again" + (f", {thinned} thinned and not checked" if thinned else ""))


def _asked_probe(before: State, event: Probed) -> Probe:
    return next(p for p in before.outstanding if (p.stage, p.index) == (event.stage, event.index))


def _close(a: float, b: float, losses: Sequence[float]) -> bool:
    if not (math.isfinite(a) and math.isfinite(b)):
        return math.isfinite(a) == math.isfinite(b)
    finite = [loss for loss in losses if math.isfinite(loss)]
    # A forecast is an extrapolation: rounding of the losses comes out many thousand times larger than it went in.
    return abs(a - b) <= 1e-4 * float(np.ptp(finite or [0.0])) + 1e-4 * max(abs(a), abs(b))


def _decisions(events: Sequence[Event], states: Sequence[State], strategy: Strategy) -> Check:
    """Commands decided again from the state before them."""
    name, count, different = "decisions come out the same", 0, []
    for before, event in zip(states, events[1:], strict=False):
        if not isinstance(event, Asked):
            continue
        count += 1
        again = engine.decide(before, strategy)
        if not _same_command(event.command, again):
            what = f"{type(event.command).__name__.lower()} of stage {event.command.stage}"
            different.append(f"{what}: recorded LR {peak_lr(event.command.profile):.6g}, again {_words(again)}")
    if different:
        more = f" and {len(different) - 1} more" if len(different) > 1 else ""
        return Check(name, "warning", different[0] + more + " (another SciPy or version may decide differently)")
    return Check(name, "ok", f"{count} decided again")


def _words(command: Probe | Commit | Wait | Finish) -> str:
    if isinstance(command, (Probe, Commit)):
        return f"{type(command).__name__.lower()} at {peak_lr(command.profile):.6g}"
    return type(command).__name__


def _same_command(a: Probe | Commit, b: Probe | Commit | Wait | Finish) -> bool:
    if not isinstance(b, (Probe, Commit)) or type(a) is not type(b):
        return False
    same = (a.stage, a.start_from, len(a.profile)) == (b.stage, b.start_from, len(b.profile))
    return same and all(
        s.steps == t.steps
        and math.isclose(s.lr_start, t.lr_start, rel_tol=1e-6)
        and math.isclose(s.lr_end, t.lr_end, rel_tol=1e-6)
        for s, t in zip(a.profile, b.profile, strict=True)
    )


def _schedule_file(folder: Path, final: State) -> Iterator[Check]:
    path = folder / "schedule.json"
    if not path.exists():
        return
    name = "schedule.json agrees"
    try:
        saved = Schedule.load(path)
    except (ValueError, OSError, KeyError) as error:
        yield Check(name, "failed", str(error))
        return
    if saved != final.schedule and final.finished is not None:
        yield Check(name, "failed", f"{saved.total_steps:,} steps there, {final.schedule.total_steps:,} in the journal")
    else:
        yield Check(name, "ok")
