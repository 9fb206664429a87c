"""`autolrs show RUN`: a run in words and tables, from its journal alone."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from autolrs.cli.common import Run, console, number, plain_errors, read_run, table
from autolrs.cli.follow import follow
from autolrs.report.figures import profile_words, stage_name, validation_steps
from autolrs.report.info import RunInfo, gather


def show(
    run: Run,
    follow_it: Annotated[
        bool, typer.Option("--follow", "-f", help="Watch a run that is under way until it is finished.")
    ] = False,
) -> None:
    """What a run did: its settings, stages, notes and cost. Works for a run that is under way or was killed, too.

    \b
    Examples:
      autolrs show runs/demo
      autolrs show runs/demo/journal.jsonl
      autolrs show runs/demo --follow
    """
    if follow_it:
        follow(run, console())
        return
    events = read_run(run)
    with plain_errors():
        info = gather(events)
    out = console()
    _head(out, run, info)
    _stages(out, info)
    _notes(out, info)
    _cost(out, info)
    _reuse(out, run, info)


def _head(out: Console, run: Path, info: RunInfo) -> None:
    total = info.settings.total_steps
    of = "" if total is None else f" of {total:,}"
    if info.finished is not None:
        status = f"finished: {info.finished}"
    else:
        status = f"not finished: {info.schedule.total_steps:,}{of} steps committed"
    strategy = f"{info.settings.strategy} ({info.settings.preset})"
    out.print(f"[bold]{escape(str(run))}[/]  strategy {strategy}, {escape(status)}", soft_wrap=True)
    if info.versions:
        out.print(escape("on " + ", ".join(f"{name} {value}" for name, value in info.versions.items())), style="dim")
    if info.interval is not None:
        how = " (found by the range test)" if info.settings.lr == "auto" else ""
        out.print(f"LRs searched: {number(info.interval[0])} to {number(info.interval[1])}{how}")
    if info.best is not None:
        last = info.looks[-1] if info.looks else info.best
        out.print(
            f"best validation loss: {number(info.best.loss, 4)} at step {info.best.step:,}; "
            f"last look: {number(last.loss, 4)} at step {last.step:,}"
        )
    hidden = {"lr", "total_steps", "strategy", "preset"}  # said above
    changed = [f"{name}={value}" for name, value in info.changed.items() if name not in hidden]
    out.print(escape("settings changed from their defaults: " + (", ".join(changed) or "none")))


def _stages(out: Console, info: RunInfo) -> None:
    if not info.stages:
        out.print("\nno stage began")
        return
    rows = table("stage", ">steps", "LR", ">probes", ">aborted", "judged by", ">forecast", ">then", title="\nStages")
    for stage in info.stages:
        rows.add_row(
            stage_name(stage),
            f"{stage.start:,}-{stage.start + stage.steps:,}" if stage.profile else f"{stage.start:,}-",
            profile_words(stage.profile) if stage.profile else "searching",
            str(len(stage.probes) or "-"),
            str(sum(probe.aborted for probe in stage.probes) or "-"),
            f"{stage.metric} loss" if stage.probes else "-",
            number(stage.forecast),
            number(stage.final_loss) if stage.done else "under way",
        )
    out.print(rows)
    out.print(
        "forecast: what the chosen LR's probe promised for the stage's end. then: the training loss there.",
        style="dim",
    )


def _notes(out: Console, info: RunInfo) -> None:
    if info.notes:
        out.print("\n[bold]Notes[/]")
        for step, message in info.notes:
            out.print(escape(f"  at step {step:,}: {message}"), soft_wrap=True)


def _cost(out: Console, info: RunInfo) -> None:
    cost = info.cost
    diverged = sum(not math.isfinite(p.forecast) and not p.aborted for s in info.stages for p in s.probes)
    rows = table("what", ">steps", "", title="\nCost")
    rows.add_row("committed", f"{cost.committed:,}", "the schedule")
    rows.add_row("probes", f"{cost.probed:,}", f"{cost.probes} probes" + (f", {diverged} diverged" if diverged else ""))
    rows.add_row("aborted probes", f"{cost.aborted:,}", f"{cost.aborted_probes} probes")
    if cost.range_test:
        rows.add_row("range test", f"{cost.range_test:,}", "")
    if cost.failed:
        rows.add_row("undone", f"{cost.failed:,}", "because training broke")
    if cost.reused:
        rows.add_row("reused", f"-{cost.reused:,}", "probe steps that became committed ones")
    ratio = "" if cost.ratio is None else f"{cost.ratio:.2f} x the committed steps"
    rows.add_row("[bold]in all[/]", f"[bold]{cost.raw:,}[/]", ratio)
    if info.restarts:
        rows.add_row("lost", f"{cost.lost:,}", f"on top of that, by {info.restarts} restart(s)")
    worth = validation_steps(info)
    with_them = f"worth {worth:,.0f} steps more: {(cost.raw + worth) / cost.committed:.2f} x" if cost.committed else ""
    rows.add_row("validation passes", f"{cost.evaluations:,}", with_them if cost.evaluations else "")
    out.print(rows)


def _reuse(out: Console, run: Path, info: RunInfo) -> None:
    if not info.schedule.segments:
        out.print("\nNothing was committed yet, so there is no schedule to reuse.")
        return
    out.print("\n[bold]Train again with this schedule[/], without any search:")
    out.print(escape(f"  autolrs export {run} --to torch -o lr_schedule.py      (or json, csv, optax)"), soft_wrap=True)
    file = (run if run.is_dir() else run.parent) / "schedule.json"
    if file.exists():
        out.print(escape(f'  in Python: autolrs.Schedule.load("{file}").to_torch(optimizer)'), soft_wrap=True)
