"""A run as one picture (PNG or whatever the file name asks for). Only draws what `info` gathered; needs matplotlib."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from autolrs.report.figures import (
    ProbesData,
    fill_ramps,
    loss_series,
    named_lrs,
    posterior_info,
    schedule_series,
    single,
    steps_by_purpose,
)
from autolrs.report.info import RunInfo

INK, GRID = "#22303c", "#e3e7eb"
BLUE, ORANGE, GREY, RED = "#2f6db3", "#e8762c", "#8fa1b3", "#c0392b"
PURPOSES = {
    "committed": BLUE,
    "probes, undone": "#b9c6d3",
    "probes, stopped early": "#e3a79f",
    "range test": "#d9cfa6",
    "undone because training broke": "#c9a9c6",
    "lost to a restart": "#d5d5d5",
}
_STYLE = {
    "font.size": 9.5,
    "font.family": "sans-serif",
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": "#b5bec7",
    "axes.titlesize": 10.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "grid.linewidth": 0.8,
    "xtick.color": INK,
    "ytick.color": INK,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
}


def run_picture(run: RunInfo, path: str | Path, *, title: str = "", stage: int | None = None) -> None:
    """Write the picture of a run: schedule with its probes, losses, one stage's posterior, and where steps went."""
    figure_class, style = _matplotlib()
    with style(_STYLE):
        figure = figure_class(figsize=(11, 7), layout="constrained")
        grid = figure.add_gridspec(3, 2, height_ratios=[6, 6, 1.3])
        draw_schedule(figure.add_subplot(grid[0, :]), run)
        draw_losses(figure.add_subplot(grid[1, 0]), run)
        draw_posterior(figure.add_subplot(grid[1, 1]), run, stage)
        draw_cost(figure.add_subplot(grid[2, :]), run)
        if title:
            figure.suptitle(title, x=0.01, ha="left", fontsize=12.5, fontweight="bold")
        figure.savefig(path, dpi=130)


def range_picture(
    lrs: list[float], losses: list[float], interval: tuple[float, float], path: str | Path, *, title: str = ""
) -> None:
    """Write the picture of a range test: loss over LR, with the suggested interval shaded."""
    figure_class, style = _matplotlib()
    with style(_STYLE):
        figure = figure_class(figsize=(7, 4), layout="constrained")
        axes = figure.add_subplot()
        axes.axvspan(*interval, color=BLUE, alpha=0.10, lw=0)
        axes.plot(lrs, losses, color=BLUE, lw=1.6)
        _clip_top(axes, losses)
        axes.set(xscale="log", xlabel="learning rate", ylabel="training loss", title=title or "LR range test")
        axes.annotate(
            f"{interval[0]:.2g} to {interval[1]:.2g}",
            (math.sqrt(interval[0] * interval[1]), 0.97),
            xycoords=("data", "axes fraction"),
            ha="center",
            va="top",
            color=BLUE,
        )
        figure.savefig(path, dpi=130)


def one_figure(draw: Callable[[Any], None]) -> Any:
    """A matplotlib figure with one pair of axes, drawn by `draw`."""
    figure_class, style = _matplotlib()
    with style(_STYLE):
        figure = figure_class(figsize=(8, 4.5), layout="constrained")
        draw(figure.add_subplot())
    return figure


def draw_schedule(axes: Any, run: RunInfo) -> None:
    """LR over committed steps; every probe is a faint dot where its stage begins."""
    series = schedule_series(run.schedule)
    if not series.steps.size and not any(stage.probes for stage in run.stages):
        _empty(axes, "Schedule", "no LR was tried to the end")
        return
    for stage in run.stages:
        probes = single(stage)
        lrs = [probe.lr for probe in probes]
        finite = [math.isfinite(probe.forecast) for probe in probes]
        at = [stage.start] * len(lrs)
        if probes:
            axes.vlines(stage.start, min(lrs), max(lrs), color=GRID, lw=1.2, zorder=1)
        for mark, wanted, colour in (("o", True, GREY), ("x", False, RED)):
            chosen = [i for i in range(len(lrs)) if finite[i] is wanted]
            axes.scatter(
                [at[i] for i in chosen],
                [lrs[i] for i in chosen],
                s=20,
                marker=mark,
                color=colour,
                alpha=0.6,
                lw=1.2 if mark == "x" else 0,
                zorder=2,
            )
    if series.steps.size:
        # A log axis has no 0: a decay to it is cut three decades below the highest LR.
        floor = series.lrs.max() * 1e-3
        line = fill_ramps(series)
        axes.plot(line.steps, np.where(line.lrs > floor, line.lrs, np.nan), color=BLUE, lw=2.2, zorder=3)
        _name_stages(axes, run)
    axes.set(
        yscale="log", ylabel="learning rate", xlabel="committed step", title="Schedule and the LRs that were tried"
    )
    axes.margins(x=0.015)
    _legend(
        axes,
        [
            ("line", BLUE, "committed"),
            ("o", GREY, "probed"),
            *([("x", RED, "diverged or stopped")] if any(_bad(s) for s in run.stages) else []),
        ],
    )


def draw_losses(axes: Any, run: RunInfo) -> None:
    """Committed training losses, and what each stage's winner had promised for its end."""
    series = loss_series(run)
    if not series.steps.size:
        _empty(axes, "Training loss", "no step was committed")
        return
    axes.plot(series.steps, series.losses, color=BLUE, alpha=0.25, lw=0.8)
    axes.plot(series.steps, series.smooth, color=BLUE, lw=1.8, label="training loss")
    finite = series.losses[np.isfinite(series.losses)]
    if finite.size and finite.min() > 0 and finite.max() / finite.min() > 20:
        axes.set_yscale("log")
    bottom = axes.get_ylim()[0]
    for metric, mark in (("train", "o"), ("validation", "D")):
        promised = [
            (stage.start + stage.steps, stage.forecast)
            for stage in run.stages
            if stage.done and stage.metric == metric and stage.forecast is not None
        ]
        shown = [at for at in promised if at[1] >= bottom]
        if shown:
            options = {"s": 30, "marker": mark, "color": ORANGE, "zorder": 4, "label": f"forecast ({metric} loss)"}
            axes.scatter(*zip(*shown, strict=True), **options)
        for step, _ in (at for at in promised if at[1] < bottom):  # below the picture, such as a negative forecast
            axes.plot([step], [0.02], "v", transform=axes.get_xaxis_transform(), color=ORANGE, ms=6, clip_on=False)
    promises = any(stage.forecast is not None for stage in run.stages)
    title = "Training loss, and the forecasts for each stage's end" if promises else "Training loss"
    axes.set(xlabel="committed step", ylabel="loss", title=title)
    axes.legend(loc="upper right")
    axes.margins(x=0.015)


def draw_posterior(axes: Any, run: RunInfo, stage: int | None = None) -> None:
    """One stage's forecasts over the LR, the posterior through them, and the winner."""
    data = posterior_info(run, stage)
    if data is None:
        _empty(axes, "Posterior", "no stage has two finite forecasts")
        return
    if data.mean is not None and data.std is not None:
        axes.fill_between(
            data.lrs,
            data.mean - 2 * data.std,
            data.mean + 2 * data.std,
            color=BLUE,
            alpha=0.12,
            lw=0,
            label="± 2 sd",
        )
        axes.plot(data.lrs, data.mean, color=BLUE, lw=1.6, label="posterior mean")
    else:
        axes.plot(*zip(*sorted(data.explored), strict=True), color=GREY, lw=1.2)
    label = "probe's forecast" if data.mean is not None else "miniature run"
    axes.scatter(*zip(*data.explored, strict=True), s=24, color=INK, zorder=3, label=label)
    for order, at in zip(data.orders, data.explored, strict=True):
        axes.annotate(str(order), at, xytext=(0, 5), textcoords="offset points", ha="center", fontsize=8)
    if data.winner is not None:
        axes.scatter(*data.winner, s=150, marker="*", color=ORANGE, zorder=4, label=f"chosen: {data.winner[0]:.2g}")
    elif data.chosen is not None:
        axes.axvline(data.chosen, color=ORANGE, lw=1.6, ls="--", label=f"chosen: {data.chosen:.2g}")
    ys = [y for _, y in data.explored]
    _clip_top(axes, ys, bottom=True)
    for lr in data.diverged:
        axes.plot([lr], [0.97], "x", transform=axes.get_xaxis_transform(), color=RED, ms=6)
    known = data.mean is not None
    title = f"What stage {data.stage} knew" if known else "Short runs at several LRs, and the LR chosen"
    axes.set(xscale="log", xlabel="learning rate", ylabel="forecast loss" if known else "loss", title=title)
    _lr_axis(axes)
    axes.legend(loc="best")


def draw_probes(axes: Any, data: ProbesData) -> None:
    """A stage's probes: losses faint, smoothed, and the forecast dashed to the horizon; numbers are their order."""
    for curve in data.curves:
        colour, width = (ORANGE, 2.2) if curve.winner else (BLUE, 1.2)
        label = f"{curve.order}: LR {curve.lr:.3g}{' (winner)' if curve.winner else ''}"
        faint = 0.25 if curve.smooth is not None else 1.0
        axes.plot(
            curve.losses.x,
            curve.losses.y,
            color=colour,
            alpha=faint,
            lw=0.8,
            marker="." if curve.losses.x.size < 3 else "",
        )
        if curve.smooth is not None:
            axes.plot(curve.smooth.x, curve.smooth.y, color=colour, lw=width)
        if curve.fit is not None:
            axes.plot(curve.fit.x, curve.fit.y, color=colour, lw=width / 2, ls="--", label=label)
            axes.annotate(str(curve.order), (data.horizon, curve.forecast), xytext=(4, 0), textcoords="offset points")
    seen = [value for curve in data.curves if curve.status != "aborted" for value in (*curve.losses.y, curve.forecast)]
    _clip_top(axes, seen)
    title = f"Probes of stage {data.stage}, and their forecasts"
    axes.set(xlabel="step of the stage", ylabel=f"{data.metric} loss", title=title)
    if any(curve.fit is not None for curve in data.curves):
        axes.legend(loc="upper right", ncols=2)


def draw_cost(axes: Any, run: RunInfo) -> None:
    """One bar: where steps went."""
    parts = steps_by_purpose(run)
    total = sum(steps for _, steps in parts) or 1
    left = 0
    for name, steps in parts:
        axes.barh([0], [steps], left=left, color=PURPOSES[name], height=0.9)
        if steps / total > 0.12:
            dark = name == "committed"
            axes.text(
                left + steps / 2,
                0,
                f"{name}: {steps:,} ({steps / total:.0%})",
                ha="center",
                va="center",
                color="white" if dark else INK,
            )
        left += steps
    ratio = run.cost.ratio
    cost = "" if ratio is None else f" (cost {ratio:.2f} x)"
    small = "; ".join(f"{name}: {steps:,}" for name, steps in parts if steps / total <= 0.12)
    axes.set(yticks=[], xlim=(0, total), title=f"Where {total:,} steps went{cost}")
    axes.set_title(small, loc="right", fontsize=9, fontweight="normal")
    axes.grid(False)
    axes.spines["left"].set_visible(False)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")


def _matplotlib() -> tuple[Any, Any]:
    """The Figure class (drawn by Agg, no display and no global state) and the style context."""
    try:
        from matplotlib import rc_context
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError("pictures need matplotlib: pip install 'autolrs[report]'") from error

    def figure(**options: Any) -> Any:
        made = Figure(**options)
        FigureCanvasAgg(made)
        return made

    return figure, rc_context


def _name_stages(axes: Any, run: RunInfo) -> None:
    """The LR above where it is constant for long enough to hold the number; if it never is, the schedule's peak."""
    named, flat = named_lrs(run.schedule, 0.05)
    for step, lr in named:
        text = f"{lr:.2g}" if flat else f"peak {lr:.2g}"
        style = {"ha": "center", "va": "bottom", "color": BLUE, "fontweight": "bold"}
        axes.annotate(text, (step, lr), xytext=(0, 4), textcoords="offset points", **style)


def _lr_axis(axes: Any) -> None:
    """A log axis over the LR with plain numbers; below two decades also at 2 and 5, so that there are some."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    low, high = axes.get_xlim()
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    if high / low < 100:
        axes.xaxis.set_minor_locator(LogLocator(subs=(2.0, 5.0)))
        axes.xaxis.set_minor_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    else:
        axes.xaxis.set_minor_formatter(NullFormatter())


def _bad(stage: Any) -> bool:
    return any(not math.isfinite(probe.forecast) for probe in stage.probes)


def _clip_top(axes: Any, values: list[float], bottom: bool = False) -> None:
    """Limits from the finite values, so that one that exploded does not flatten the rest."""
    finite = np.array([value for value in values if math.isfinite(value)])
    if not finite.size:
        return
    low, high = float(finite.min()), float(finite.max())
    middle = float(np.median(finite))
    high = min(high, middle + 6 * max(middle - low, 1e-12)) if not bottom else high
    margin = 0.12 * (high - low or 1.0)
    axes.set_ylim(low - margin, high + margin)


def _empty(axes: Any, title: str, message: str) -> None:
    axes.set(title=title, xticks=[], yticks=[])
    axes.text(0.5, 0.5, message, ha="center", va="center", transform=axes.transAxes, color=GREY)


def _legend(axes: Any, entries: list[tuple[str, str, str]]) -> None:
    """A legend above the right end of the axes, where no data are."""
    from matplotlib.lines import Line2D

    handles = [
        Line2D([], [], color=colour, lw=2.2, label=label)
        if mark == "line"
        else Line2D([], [], color=colour, marker=mark, lw=0, ms=5, alpha=0.8, label=label)
        for mark, colour, label in entries
    ]
    axes.legend(handles=handles, loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=len(handles), borderaxespad=0.1)
