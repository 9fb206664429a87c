"""The sections of a run's report: each has a heading, a line of plain English, figures, and the same as a table."""

from __future__ import annotations

import math
from datetime import datetime, timezone
from html import escape
from statistics import median

from autolrs.core.types import peak_lr
from autolrs.report import specs
from autolrs.report.figures import (
    calibration,
    loss_series,
    profile_words,
    searched_stages,
    single,
    stage_name,
    steps_by_purpose,
    validation_steps,
)
from autolrs.report.html import Part, details, figure, table
from autolrs.report.info import RunInfo
from autolrs.report.load import LoadedRun
from autolrs.report.reuse import python_code
from autolrs.report.search_sections import horizon_section, stages_section


def run_part(run: LoadedRun, key: str, command_path: str) -> Part:
    """All sections of one run; `key` begins every anchor."""
    part, info = Part(), run.info
    _schedule(part, info, f"{key}-schedule")
    _losses(part, info, f"{key}-losses")
    if info.settings.strategy == "horizon":
        horizon_section(part, info, f"{key}-choice")
    elif searched_stages(info):
        stages_section(part, info, f"{key}-stages")
    _calibration(part, info, f"{key}-forecasts")
    _cost(part, run, f"{key}-cost")
    _reuse(part, info, f"{key}-reuse", command_path)
    _settings(part, info, f"{key}-settings")
    return part


def headline(run: LoadedRun) -> str:
    """What came out of the run, in one or two sentences."""
    info = run.info
    if not info.schedule.segments:
        return "No step is trained for good yet: learning rates are still being tried."
    peak, cost = peak_lr(info.schedule.segments), info.cost
    loss = "" if info.final_loss is None else f" It ends at a training loss of {info.final_loss:.4g}."
    tried = cost.probes + cost.aborted_probes
    how = f"{tried} short trials" if tried else "no trial"
    price = "" if cost.ratio is None else f" The search made the training {cost.ratio:.2f} times as long."
    return f"{cost.committed:,} steps were trained with learning rates up to {peak:.3g}, chosen by {how}.{loss}{price}"


def cards(run: LoadedRun) -> str:
    """The numbers that people look for first."""
    info, cost = run.info, run.info.cost
    aborted = f"{cost.aborted_probes} stopped early" if cost.aborted_probes else "none stopped early"
    total = info.settings.total_steps
    shown: list[tuple[str, str, str]] = [
        ("Final training loss", _number(info.final_loss), "mean over the last stretch's end"),
        ("Highest LR", _number(peak_lr(info.schedule.segments) if info.schedule.segments else None), "of the schedule"),
        ("Steps trained", f"{cost.committed:,}", "" if total is None else f"of {total:,}"),
        ("Cost", "-" if cost.ratio is None else f"{cost.ratio:.2f} x", f"{cost.raw:,} steps in all"),
        ("Trials", f"{cost.probes + cost.aborted_probes}", aborted),
    ]
    if info.best is not None:
        shown.append(("Best validation loss", _number(info.best.loss), f"at step {info.best.step:,}"))
    if run.seconds is not None:
        begun = (
            "" if run.begun is None else f"from {datetime.fromtimestamp(run.begun, timezone.utc):%Y-%m-%d %H:%M} UTC"
        )
        shown.append(("Time", clock(run.seconds), begun))
    inner = "".join(
        f'<div class="card"><dt>{escape(name)}</dt><dd>{escape(value)}<small>{escape(note)}</small></dd></div>'
        for name, value, note in shown
    )
    return f'<dl class="cards">{inner}</dl>'


def clock(seconds: float) -> str:
    """Hours, minutes and seconds, as few as are needed.

    >>> clock(3725), clock(75.2), clock(8.04)
    ('1 h 2 min', '1 min 15 s', '8.0 s')
    """
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes = int(seconds) // 60
    return f"{minutes} min {int(seconds) % 60} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def _schedule(part: Part, info: RunInfo, key: str) -> None:
    segments = info.schedule.segments
    if segments:
        first, last, peak = segments[0].lr_start, segments[-1].lr_end, peak_lr(segments)
        told = f"The learning rate begins at {first:.3g}, is {peak:.3g} at its highest and ends at {last:.3g}"
        told += "; each dot is one that was tried where it stands, and undone." if searched_stages(info) else "."
    else:
        told = "Nothing is trained for good yet; each dot is a learning rate that was tried."
    rows = [
        (
            stage_name(stage),
            stage.start,
            stage.steps,
            profile_words(stage.profile) if stage.profile else "searching",
            len(stage.probes),
            f"{stage.metric} loss" if stage.probes else "-",
            stage.forecast if info.settings.strategy == "paper" else None,
            stage.final_loss if stage.done else "under way",
        )
        for stage in info.stages
    ]
    columns = ("stage", ">from step", ">steps", "LR", ">trials", "judged by", ">forecast", ">loss at its end")
    inner = figure(f"{key}-lr", told, table("Stages", columns, rows))
    if info.notes:
        items = "".join(f"<li>At step {step:,}: {escape(note)}</li>" for step, note in info.notes)
        inner += f'<h3>Remarks from the run</h3><ul class="notes">{items}</ul>'
    part.add(key, "Schedule", inner, lr=specs.schedule_spec(info))


def _losses(part: Part, info: RunInfo, key: str) -> None:
    series = loss_series(info)
    if not series.steps.size:
        return
    known = [float(value) for value in series.smooth if math.isfinite(value)]
    told = f"The training loss went from {known[0]:.4g} to {_number(info.final_loss)}" if known else "No loss is finite"
    if any(single(s) for s in info.stages):
        told += "; what trials saw is gold (training loss) or green (validation loss), and was undone"
    told += "."
    if info.best is not None:
        told += f" The validation loss was lowest, {info.best.loss:.4g}, at step {info.best.step:,}."
    rows = []
    for stage in info.stages:
        finite = [loss for loss in stage.losses if math.isfinite(loss)]
        if stage.done and finite:
            rows.append((stage_name(stage), stage.start, finite[0], min(finite), max(finite), stage.final_loss))
    columns = ("stage", ">from step", ">first loss", ">lowest", ">highest", ">loss at its end")
    part.add(
        key, "Loss", figure(f"{key}-loss", told, table("Training loss", columns, rows)), loss=specs.losses_spec(info)
    )


def _calibration(part: Part, info: RunInfo, key: str) -> None:
    points = calibration(info)
    if not points:
        return
    errors = [abs(p.forecast - p.actual) / max(abs(p.actual), 1e-12) for p in points]
    typical = median(errors)
    told = f"Of {len(points)} forecasts half lay within {typical:.1%} of what then happened; "
    told += "on the dashed line a forecast is right."
    if typical > 0.25:
        told += " That is far off: trust the order of the LRs more than the numbers."
    rows = [
        (
            p.stage,
            f"{p.metric} loss",
            p.forecast,
            p.actual,
            f"{(p.forecast - p.actual) / max(abs(p.actual), 1e-12):+.1%}",
        )
        for p in points
    ]
    columns = (">stage", "of", ">forecast", ">then", ">error")
    inner = figure(f"{key}-calibration", told, table("Forecasts and outcomes", columns, rows))
    part.add(key, "Were the forecasts right?", inner, calibration=specs.calibration_spec(points))


def _cost(part: Part, run: LoadedRun, key: str) -> None:
    info, cost = run.info, run.info.cost
    if cost.ratio is not None:
        told = f"{cost.raw:,} steps were run to train {cost.committed:,}: {cost.ratio:.2f} x one run without search."
    else:
        told = f"{cost.raw:,} steps were run so far, all of them trials."
    worth = validation_steps(info)
    if worth:
        told += f" {cost.evaluations:,} validation passes cost about as much as {worth:,.0f} steps more."
    rows: list[tuple[str, int | float]] = [*steps_by_purpose(info)]
    if cost.reused:
        rows.append(("(trial steps that became committed ones, counted once)", cost.reused))
    rows += [("in all", cost.raw), ("validation passes", cost.evaluations)]
    inner = figure(f"{key}-steps", told, table("Steps", ("what", ">steps"), rows))
    part.add(key, "Where the steps went", inner, steps=specs.cost_spec(info))


def _reuse(part: Part, info: RunInfo, key: str, command_path: str) -> None:
    if not info.schedule.segments:
        return
    command = f"autolrs export {command_path} --to torch -o lr_schedule.py   # or json, csv, optax"
    inner = (
        "<p>Train again with this schedule, without any search and at the cost of one run:</p>"
        f'<pre id="{key}-code" tabindex="0"><code>{escape(python_code(info.schedule))}</code></pre>'
        f'<button type="button" data-copy="{key}-code">Copy the code</button>'
        "<p>Or as a file that needs PyTorch alone:</p>"
        f'<pre id="{key}-command" tabindex="0"><code>{escape(command)}</code></pre>'
        f'<button type="button" data-copy="{key}-command">Copy the command</button>'
    )
    part.add(key, "Use the schedule again", inner)


def _settings(part: Part, info: RunInfo, key: str) -> None:
    changed = info.changed
    rows = [(name, str(value)) for name, value in changed.items()]
    everything = [(name, str(value)) for name, value in info.settings.to_dict().items()]
    versions = [(name, value) for name, value in info.versions.items()]
    inner = f"<p>{len(rows)} settings differ from their defaults.</p>" + table(
        "Changed settings", ("setting", "value"), rows
    )
    inner += details("All settings", table("All settings", ("setting", "value"), everything))
    inner += "<h3>Versions and machine</h3>"
    inner += (
        table("Recorded when the run began", ("what", "value"), versions) if versions else "<p>None were recorded.</p>"
    )
    if info.restarts:
        inner += (
            f"<p>The run was resumed {info.restarts} time(s); {info.cost.lost:,} recorded steps were taken again.</p>"
        )
    part.add(key, "Settings", inner)


def _number(value: float | None) -> str:
    return "-" if value is None or math.isnan(value) else f"{value:.4g}"
