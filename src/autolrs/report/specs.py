"""A run's figures for Plotly: plain dictionaries with `data` and `layout`, colours by role (see `theme`)."""

from __future__ import annotations

import math
from collections.abc import Iterable
from html import escape
from typing import Any

import numpy as np

from autolrs.report import spec_parts as parts
from autolrs.report.compare import Comparison
from autolrs.report.figures import (
    CalibrationPoint,
    fill_ramps,
    loss_series,
    named_lrs,
    probe_lines,
    probe_points,
    schedule_series,
    steps_by_purpose,
    validation_steps,
)
from autolrs.report.info import RunInfo
from autolrs.report.spec_parts import Spec
from autolrs.report.theme import DASHES, RUNS

MOST_MARKS = 400  # every mark is an element of the page; beyond this lines tell the same
PURPOSES = {
    "committed": ("@blue", ""),
    "probes, undone": ("@gold", "/"),
    "probes, stopped early": ("@orange", "x"),
    "range test": ("@purple", "."),
    "undone because training broke": ("@muted", "\\"),
    "lost to a restart": ("@muted", "-"),
    "validation passes, in steps' worth": ("@green", "+"),
}


def schedule_spec(run: RunInfo) -> Spec:
    """LR over committed steps, with every LR that was tried at the start of its stage."""
    points = probe_points(run)
    series = fill_ramps(schedule_series(run.schedule))
    data: list[Spec] = []
    rails: list[tuple[float, float]] = []
    for step, lrs in _by_step(points).items():
        rails += [(step, min(lrs)), (step, max(lrs)), (step, math.nan)]
    many = len(points) > MOST_MARKS
    if rails:
        x, y = zip(*rails, strict=True)
        name = "range of LRs tried" if many else "tried"
        role = "@gold:0.7" if many else "@grid"
        data.append(parts.line(x, y, role, name, width=2, showlegend=many, hoverinfo="skip"))
    for good, name, symbol, role in (
        (True, "tried", "circle", "@gold"),
        (False, "diverged or stopped", "x", "@orange"),
    ):
        chosen = [p for p in points if math.isfinite(p.forecast) is good]
        if chosen and (not many or len(chosen) <= MOST_MARKS):
            text = [f"stage {p.stage}, probe {p.order}<br>forecast {p.forecast:.4g}" for p in chosen]
            marks = parts.marks([p.step for p in chosen], [p.lr for p in chosen], role, name, symbol, size=8, text=text)
            data.append({**marks, "hovertemplate": "LR %{y:.4g}<br>%{text}<extra></extra>"})
    tops = [p.lr for p in points]
    if series.steps.size:
        floor = float(series.lrs.max()) * 1e-3  # a log axis has no 0: a decay to it is cut three decades down
        drawn = np.where(series.lrs > floor, series.lrs, math.nan)
        hover = "step %{x:,.0f}<br>LR %{y:.4g}<extra></extra>"
        data.append(parts.line(series.steps, drawn, "@blue", "trained with", width=3, hovertemplate=hover))
        tops += [float(series.lrs.max()), float(np.nanmin(drawn))]
    layout = parts.figure_layout("committed step", "learning rate", log_y=parts.log_range(tops))
    layout["xaxis"]["tickformat"] = ",~r"
    layout["annotations"] = _names(run)
    return {"data": data, "layout": layout}


def _names(run: RunInfo) -> list[Spec]:
    """The LR above where it is constant for long enough to hold the number; if it never is, the schedule's peak."""
    named, flat = named_lrs(run.schedule, 0.08)
    what, side = ("", "center") if flat else ("peak ", "left")  # a peak stands near the start, where the trials are
    style = {
        "showarrow": False,
        "xanchor": side,
        "xshift": 0 if flat else 6,
        "yshift": 12,
        "font": {"color": "@blue", "size": 13},
        "bgcolor": "@paper:0.7",
    }
    return [{"x": x, "y": math.log10(lr), "text": f"<b>{what}{lr:.2g}</b>", **style} for x, lr in named]


def _by_step(points: Iterable[Any]) -> dict[int, list[float]]:
    found: dict[int, list[float]] = {}
    for point in points:
        found.setdefault(point.step, []).append(point.lr)
    return found


def losses_spec(run: RunInfo) -> Spec:
    """Losses over committed steps: trained, probed (faint), validation, and what each stage's winner promised."""
    series = loss_series(run)
    data: list[Spec] = []
    probed = parts.joined(probe_lines(run))
    if probed.x.size:
        data.append(parts.line(probed.x, probed.y, "@gold:0.45", "probes", width=1, hoverinfo="skip"))
    seen = [*parts.finite(series.losses)]
    if series.steps.size:
        hover = "step %{x:,.0f}<br>loss %{y:.4g}<extra></extra>"
        data.append(
            parts.line(series.steps, series.losses, "@blue:0.35", "training loss", width=1, hovertemplate=hover)
        )
        data.append(parts.line(series.steps, series.smooth, "@blue", "running mean", width=3, hovertemplate=hover))
    validation = probe_lines(run, "validation")
    if validation:
        joined = parts.joined(validation)
        hover = "step %{x:,.0f}<br>validation loss %{y:.4g}<extra></extra>"
        marks = parts.marks(
            joined.x, joined.y, "@green", "validation loss (probes)", "diamond", size=6, hovertemplate=hover
        )
        many = joined.x.size > MOST_MARKS
        style = {"color": "@green" if many else "@green:0.5", "width": 1, "dash": "solid" if many else "dot"}
        data.append({**marks, "mode": "lines" if many else "lines+markers", "line": style})
        seen += [value for line in validation for value in parts.finite(line.y)[-1:]]
    if run.averaged is not None and run.averaged.raw is not None and run.averaged.averaged is not None:
        at, pair = [run.schedule.total_steps] * 2, [run.averaged.raw, run.averaged.averaged]
        data.append(parts.marks(at, pair, "@purple", "validation: raw, averaged weights", "star", size=11))
        seen += pair
    if run.looks:
        at, values = [look.step for look in run.looks], [look.loss for look in run.looks]
        hover = "step %{x:,.0f}<br>validation loss %{y:.4g}<extra></extra>"
        data.append(parts.line(at, values, "@green", "validation loss", width=2, hovertemplate=hover))
        seen += parts.finite(values)
    if run.best is not None:
        data.append(parts.marks([run.best.step], [run.best.loss], "@green", "best state", "star", size=12))
    promised = [(s.start + s.steps, s.forecast) for s in run.stages if s.done and s.forecast is not None]
    if promised and run.settings.strategy == "paper":
        x, y = zip(*promised, strict=True)
        hover = "forecast for step %{x:,.0f}<br>%{y:.4g}<extra></extra>"
        data.append(
            parts.marks(x, y, "@orange", "forecast for the stage's end", "triangle-down", size=10, hovertemplate=hover)
        )
    layout = parts.figure_layout("committed step", "loss")
    layout["xaxis"]["tickformat"] = ",~r"
    if seen:
        parts.set_y_range(layout, min(seen), max(seen), log=True)
    return {"data": data, "layout": layout}


def calibration_spec(points: list[CalibrationPoint]) -> Spec:
    """Forecast against what then happened; on the diagonal the forecast was right."""
    values = [v for p in points for v in (p.forecast, p.actual)]
    low, high = min(values), max(values)
    margin = 0.08 * ((high - low) or abs(high) or 1.0)
    ends = [low - margin, high + margin]
    data = [parts.line(ends, ends, "@muted", "forecast = outcome", width=1, dash="dash", hoverinfo="skip")]
    for metric, symbol, role in (("train", "circle", "@blue"), ("validation", "diamond", "@green")):
        chosen = [p for p in points if p.metric == metric]
        if chosen:
            hover = "stage %{text}<br>forecast %{x:.4g}<br>then %{y:.4g}<extra></extra>"
            text = [str(p.stage) for p in chosen]
            marks = parts.marks(
                [p.forecast for p in chosen], [p.actual for p in chosen], role, f"{metric} loss", symbol, size=10
            )
            labels = {"mode": "markers+text" if len(points) <= 30 else "markers", "textposition": "top center"}
            data.append({**marks, **labels, "text": text, "textfont": {"color": "@ink"}, "hovertemplate": hover})
    layout = parts.figure_layout("forecast of the winner", "loss at the stage's end")
    return {"data": data, "layout": layout}


def cost_spec(run: RunInfo) -> Spec:
    """One bar per purpose: where the steps went."""
    shares: list[tuple[str, float]] = [*steps_by_purpose(run)]
    if validation_steps(run):
        shares.append(("validation passes, in steps' worth", validation_steps(run)))
    names = [name for name, _ in shares]
    total = sum(steps for _, steps in shares) or 1
    data = [
        {
            "type": "bar",
            "orientation": "h",
            "y": [name.replace(", ", ",<br>").replace(" after a", "<br>after a") for name in names],
            "x": [round(steps, 1) for _, steps in shares],
            "text": [f"{steps:,.0f}<br>{steps / total:.1%}" for _, steps in shares],
            "textposition": "outside",
            "textfont": {"color": "@ink"},
            "cliponaxis": False,
            "marker": {
                "color": [PURPOSES[name][0] for name in names],
                "pattern": {"shape": [PURPOSES[name][1] for name in names], "solidity": 0.25, "fgcolor": "@paper"},
            },
            "hovertemplate": "%{y}: %{x:,.0f} steps<extra></extra>",
        }
    ]
    layout = parts.figure_layout("steps", "")
    layout["yaxis"].update({"autorange": "reversed", "title": {"text": ""}})
    layout["xaxis"].update({"tickformat": "~s", "range": [0, 1.3 * max([steps for _, steps in shares], default=1)]})
    layout["showlegend"] = False
    layout["height"] = 110 + 52 * len(shares)
    return {"data": data, "layout": layout}


def compare_specs(comparison: Comparison) -> tuple[Spec, Spec]:
    """LR and loss of several runs, overlaid."""
    lrs, losses = [], []
    seen: list[float] = []
    tops: list[float] = []
    for i, run in enumerate(comparison.runs):
        role, dash, name = f"@{RUNS[i % len(RUNS)]}", DASHES[i % len(DASHES)], escape(run.name)
        if run.schedule.steps.size:
            floor = float(run.schedule.lrs.max()) * 1e-3
            values = np.where(run.schedule.lrs > floor, run.schedule.lrs, math.nan)
            tops += [float(np.nanmax(values)), float(np.nanmin(values))]
            hover = f"{name}<br>step %{{x:,.0f}}, LR %{{y:.4g}}<extra></extra>"
            lrs.append(parts.line(run.schedule.steps, values, role, name, width=3, dash=dash, hovertemplate=hover))
        if run.losses.steps.size:
            hover = f"{name}<br>step %{{x:,.0f}}, loss %{{y:.4g}}<extra></extra>"
            losses.append(
                parts.line(run.losses.steps, run.losses.smooth, role, name, width=3, dash=dash, hovertemplate=hover)
            )
            seen += parts.finite(run.losses.smooth)
    first = parts.figure_layout("committed step", "learning rate", log_y=parts.log_range(tops))
    second = parts.figure_layout("committed step", "training loss, running mean")
    for layout in (first, second):
        layout["xaxis"]["tickformat"] = ",~r"
    if seen:
        parts.set_y_range(second, min(seen), max(seen), log=True)
    if comparison.target is not None and losses:
        ends = [0, max(run.committed for run in comparison.runs)]
        name = f"target {comparison.target:.4g}"
        losses.append(parts.line(ends, [comparison.target] * 2, "@muted", name, width=1, dash="dot", hoverinfo="skip"))
    return {"data": lrs, "layout": first}, {"data": losses, "layout": second}
