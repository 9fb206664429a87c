"""Lines, marks, axes and ranges that the Plotly figures of `specs` are put together from."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from autolrs.report.figures import Line

Spec = dict[str, Any]


def numbers(values: Iterable[float]) -> list[float | None]:
    """JSON-able, six significant digits; None (a gap) where not finite."""
    return [_short(value) if math.isfinite(value) else None for value in map(float, values)]


def _short(value: float) -> float:
    rounded = float(f"{value:.6g}")
    return int(rounded) if rounded.is_integer() and abs(rounded) < 1e15 else rounded


def line(x: Any, y: Any, role: str, name: str, *, width: float, dash: str = "solid", **more: Any) -> Spec:
    """A line trace."""
    style = {"color": role, "width": width, "dash": dash}
    return {"type": "scatter", "mode": "lines", "x": numbers(x), "y": numbers(y), "name": name, "line": style, **more}


def marks(x: Any, y: Any, role: str, name: str, symbol: str, *, size: float, **more: Any) -> Spec:
    """A trace of marks."""
    marker = {"color": role, "symbol": symbol, "size": size}
    return {
        "type": "scatter",
        "mode": "markers",
        "x": numbers(x),
        "y": numbers(y),
        "name": name,
        "marker": marker,
        **more,
    }


def upright(x: float, layout: Spec, role: str, name: str, dash: str) -> Spec:
    """A vertical line at `x` over the whole height."""
    hover = {"hovertemplate": f"{name}<extra></extra>"}
    return line([x, x], layout["yaxis"]["range"], role, name, width=3 if dash == "solid" else 2, dash=dash, **hover)


def figure_layout(x: str, y: str, *, log_y: list[float] | None = None) -> Spec:
    """The layout that all figures share."""
    axis = {"gridcolor": "@grid", "linecolor": "@grid", "zeroline": False, "ticks": "outside", "tickcolor": "@grid"}
    layout: Spec = {
        "xaxis": {**axis, "title": {"text": x, "standoff": 8}, "automargin": True},
        "yaxis": {**axis, "title": {"text": y, "standoff": 8}, "automargin": True, "exponentformat": "power"},
        "font": {"color": "@ink", "size": 13},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "hoverlabel": {"bgcolor": "@paper", "bordercolor": "@muted", "font": {"color": "@ink"}},
        "legend": {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom", "font": {"size": 12}},
        "margin": {"l": 56, "r": 24, "t": 12, "b": 48},
        "hovermode": "closest",
        "height": 380,
    }
    if log_y is not None:
        layout["yaxis"].update({"type": "log", "range": log_y, "dtick": _ticks(log_y)})
    return layout


def log_x(layout: Spec, values: Iterable[float]) -> None:
    """A log axis over the LR that leaves room around `values`."""
    reach = log_range(values)
    layout["xaxis"].update({"type": "log", "range": reach, "dtick": _ticks(reach), "exponentformat": "power"})


def _ticks(reach: list[float]) -> int | str:
    return "D2" if reach[1] - reach[0] < 2.2 else 1  # at 1, 2 and 5 where powers of ten alone would be too few


def log_range(values: Iterable[float]) -> list[float]:
    """Range of a log axis around the positive values."""
    good = [value for value in values if value > 0 and math.isfinite(value)] or [1e-3, 1.0]
    low, high = math.log10(min(good)), math.log10(max(good))
    margin = 0.08 * max(high - low, 0.5)
    return [low - margin, high + margin]


def set_y_range(layout: Spec, low: float, high: float, *, log: bool = False, margin: float = 0.08) -> None:
    """Limits with a margin; with `log` a log axis where the values span a decade."""
    if log and low > 0 and high / low > 10:
        reach = log_range([low, high])
        layout["yaxis"].update({"type": "log", "range": reach, "dtick": _ticks(reach)})
        return
    pad = margin * ((high - low) or abs(high) or 1.0)
    layout["yaxis"]["range"] = [low - pad, high + pad]


def without_outliers(values: list[float]) -> tuple[float, float]:
    """Ends of the values, without the few that would flatten the rest."""
    array = np.array([value for value in values if math.isfinite(value)])
    low, middle, high = np.quantile(array, [0.0, 0.5, 1.0])
    first, third = np.quantile(array, [0.02, 0.98])
    reach = 2.5 * max(third - first, 1e-12)
    return float(max(low, middle - reach)), float(min(high, middle + reach))


def places_of(lrs: list[float]) -> list[float]:
    """Place of each LR on the scale from lowest (0) to highest (1)."""
    logs = [math.log(lr) for lr in lrs]
    if len(set(logs)) < 2:
        return [0.5] * len(logs)
    return [(value - min(logs)) / (max(logs) - min(logs)) for value in logs]


def joined(lines: list[Line]) -> Line:
    """All lines as one with gaps."""
    if not lines:
        return Line(np.zeros(0), np.zeros(0))
    gap = np.array([math.nan])
    return Line(
        np.concatenate([part for line in lines for part in (line.x, line.x[-1:])]),
        np.concatenate([part for line in lines for part in (line.y, gap)]),
    )


def finite(values: Iterable[float]) -> list[float]:
    """Those that are finite."""
    return [float(value) for value in values if math.isfinite(value)]
