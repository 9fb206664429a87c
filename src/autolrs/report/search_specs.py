"""The figures of a search for Plotly: a stage's probes and posterior, and how `horizon` came to its peak."""

from __future__ import annotations

import math

from autolrs.report import spec_parts as parts
from autolrs.report.choice import Choice
from autolrs.report.figures import Line, PosteriorInfo, ProbesData
from autolrs.report.spec_parts import Spec
from autolrs.report.theme import DASHES


def probes_spec(data: ProbesData) -> Spec:
    """A stage's probes: losses, smoothing, and the forecast through to the stage's end."""
    traces: list[Spec] = []
    seen: list[float] = []
    places = parts.places_of([curve.lr for curve in data.curves])
    for curve, t in zip(data.curves, places, strict=True):
        role, name = f"@lr:{t:.2f}", f"{curve.order}: LR {curve.lr:.3g}"
        wide = 4 if curve.winner else 2
        group: Spec = {
            "legendgroup": str(curve.order),
            "hovertemplate": f"{name}<br>step %{{x:,.0f}}, loss %{{y:.4g}}<extra></extra>",
        }
        label = name + (" (winner)" if curve.winner else " (stopped)" if curve.status == "aborted" else "")
        short = curve.losses.x.size <= 2
        mode: Spec = {"mode": "lines+markers"} if short else {}
        faint: Spec = {"opacity": 0.4} if curve.smooth is not None else {}
        traces.append(
            parts.line(
                curve.losses.x,
                curve.losses.y,
                role,
                label,
                width=1,
                showlegend=curve.smooth is None,
                **faint,
                **mode,
                **group,
            )
        )
        if curve.smooth is not None:
            traces.append(parts.line(curve.smooth.x, curve.smooth.y, role, label, width=wide, **group))
            seen += parts.finite(curve.smooth.y)
        if curve.fit is not None:
            traces.append(
                parts.line(
                    curve.fit.x, curve.fit.y, role, label, width=wide / 2, dash="dash", showlegend=False, **group
                )
            )
            end = parts.marks(
                [data.horizon],
                [curve.forecast],
                role,
                label,
                "star" if curve.winner else "circle",
                size=13 if curve.winner else 7,
            )
            text = {
                "mode": "markers+text",
                "text": [str(curve.order)],
                "textposition": "middle right",
                "cliponaxis": False,
            }
            traces.append({**end, **text, "textfont": {"color": "@ink"}, "showlegend": False, **group})
            seen += [curve.forecast]
        seen += parts.finite(curve.losses.y)[:1] if curve.status == "aborted" else parts.finite(curve.losses.y)
    if data.then.x.size and any(curve.fit is not None for curve in data.curves):
        hover = "then: step %{x:,.0f}, training loss %{y:.4g}<extra></extra>"
        name = "what then happened"
        if data.metric == "validation":
            name += " (training loss)"
        traces.insert(
            0, parts.line(data.then.x, data.then.y, "@muted:0.6", name, width=1, dash="dot", hovertemplate=hover)
        )
        seen += parts.finite(data.then.y)
    layout = parts.figure_layout("step of the stage", f"{data.metric} loss")
    layout["xaxis"]["tickformat"] = ",~r"
    if seen:
        low, high = parts.without_outliers(seen)
        parts.set_y_range(layout, low, high)
    return {"data": traces, "layout": layout}


def posterior_spec(data: PosteriorInfo) -> Spec:
    """The paper's posterior figure: mean and band over log LR, the explored points in their order, the winner."""
    traces: list[Spec] = []
    ys = [y for _, y in data.explored]
    if data.mean is not None and data.std is not None:
        lower, upper = data.mean - 2 * data.std, data.mean + 2 * data.std
        band = {"mode": "lines", "line": {"width": 0}, "hoverinfo": "skip"}
        traces.append({**parts.line(data.lrs, lower, "@blue", "lower", width=0, showlegend=False), **band})
        fill = {"fill": "tonexty", "fillcolor": "@blue:0.15"}
        traces.append({**parts.line(data.lrs, upper, "@blue", "± 2 standard deviations", width=0), **band, **fill})
        hover = "LR %{x:.4g}<br>posterior mean %{y:.4g}<extra></extra>"
        traces.append(parts.line(data.lrs, data.mean, "@blue", "posterior mean", width=3, hovertemplate=hover))
    else:
        x, y = zip(*sorted(data.explored), strict=True)
        traces.append(parts.line(x, y, "@blue", "in between", width=1, dash="dot", hoverinfo="skip"))
    hover = "probe %{text}: LR %{x:.4g}<br>forecast %{y:.4g}<extra></extra>"
    marks = parts.marks(
        [x for x, _ in data.explored], ys, "@ink", "explored, in this order", "circle", size=9, hovertemplate=hover
    )
    text = {"mode": "markers+text", "text": [str(order) for order in data.orders], "textposition": "top center"}
    traces.append({**marks, **text, "textfont": {"color": "@ink"}})
    if data.winner is not None:
        name = f"winner: {data.winner[0]:.3g}"
        traces.append(parts.marks([data.winner[0]], [data.winner[1]], "@orange", name, "star", size=18))
    layout = parts.figure_layout("learning rate", "forecast loss")
    low, high = parts.without_outliers(ys)
    parts.set_y_range(layout, low, high, margin=0.25)
    if data.diverged:
        top = layout["yaxis"]["range"][1]
        traces.append(
            parts.marks(
                data.diverged, [top] * len(data.diverged), "@orange", "diverged", "x", size=10, cliponaxis=False
            )
        )
    parts.log_x(layout, data.lrs)
    return {"data": traces, "layout": layout}


def ramp_spec(ramp: Line, mark: float, name: str) -> Spec:
    """A ramp: loss while the LR climbs, and an LR that it told."""
    hover = "LR %{x:.4g}<br>loss %{y:.4g}<extra></extra>"
    data = [parts.line(ramp.x, ramp.y, "@blue", "loss on the ramp", width=2, hovertemplate=hover)]
    layout = parts.figure_layout("learning rate", "training loss")
    parts.log_x(layout, ramp.x)
    finite = parts.finite(ramp.y)
    if finite:
        low, high = min(finite), min(max(finite), max(finite[:5]) + 2 * (max(finite[:5]) - min(finite)))
        parts.set_y_range(layout, low, high)
        data.append(parts.upright(mark, layout, "@orange", f"{name} {mark:.3g}", "dash"))
    return {"data": data, "layout": layout}


def minis_spec(choice: Choice) -> Spec:
    """The miniature runs' training losses, one line each."""
    data = []
    seen: list[float] = []
    for mini, t in zip(choice.minis, parts.places_of([mini.lr for mini in choice.minis]), strict=True):
        name = f"{mini.order}: LR {mini.lr:.3g}" + ("" if math.isfinite(mini.value) else " (stopped)")
        hover = f"{name}<br>step %{{x:,.0f}}, loss %{{y:.4g}}<extra></extra>"
        dash = DASHES[mini.order % 3]
        data.append(
            parts.line(mini.losses.x, mini.losses.y, f"@lr:{t:.2f}", name, width=2, dash=dash, hovertemplate=hover)
        )
        seen += parts.finite(mini.losses.y) if math.isfinite(mini.value) else []
    layout = parts.figure_layout("step of the miniature run", "training loss")
    if seen:
        parts.set_y_range(layout, *parts.without_outliers(seen))
    return {"data": data, "layout": layout}


def response_spec(choice: Choice) -> Spec:
    """How far each miniature run fell short of the best, and the way from there to the peak."""
    ended = sorted((m for m in choice.minis if math.isfinite(m.shortfall)), key=lambda m: m.lr)
    layout = parts.figure_layout("peak learning rate", "short of the best run's progress")
    parts.log_x(layout, [choice.landmark, choice.peak, *(m.lr for m in choice.minis)])
    layout["yaxis"].update({"tickformat": ".0%"})
    top = max([m.shortfall for m in ended] + [0.08])
    parts.set_y_range(layout, 0.0, top, margin=0.12)
    data: list[Spec] = []
    if choice.plausible is not None:
        low, high = choice.plausible
        bottom, ceiling = layout["yaxis"]["range"]
        box = {"fill": "toself", "fillcolor": "@green:0.14", "line": {"width": 0}, "mode": "lines", "hoverinfo": "skip"}
        corners = ([low, low, high, high, low], [bottom, ceiling, ceiling, bottom, bottom])
        data.append({**parts.line(*corners, "@green", f"plausible peaks: {low:.3g} to {high:.3g}", width=0), **box})
    if ended:
        text = [
            f"run {m.order}, loss {m.value:.4g}" + (f", weight {m.weight:.0%}" if choice.weighted else "")
            for m in ended
        ]
        hover: Spec = {"text": text, "hovertemplate": "LR %{x:.4g}: %{y:.1%} short<br>%{text}<extra></extra>"}
        line = parts.line(
            [m.lr for m in ended],
            [m.shortfall for m in ended],
            "@blue",
            "miniature runs (size: weight)" if choice.weighted else "miniature runs",
            width=2,
            **hover,
        )
        sizes = [7 + 16 * math.sqrt(m.weight) for m in ended]
        data.append({**line, "mode": "lines+markers", "marker": {"size": sizes, "color": "@blue"}})
    stopped = [m.lr for m in choice.minis if not math.isfinite(m.shortfall)]
    if stopped:
        at = [layout["yaxis"]["range"][1]] * len(stopped)
        data.append(
            parts.marks(stopped, at, "@orange", "diverged, stopped or not trusted", "x", size=10, cliponaxis=False)
        )
    steps = [
        (choice.landmark, "@muted", f"landmark {choice.landmark:.3g}", "dot"),
        (choice.centre, "@purple", f"weighted centre {choice.centre or 0:.3g}", "dash"),
        (choice.peak, "@orange", f"{choice.peak_words}: {choice.peak:.3g}", "solid"),
    ]
    data += [parts.upright(lr, layout, role, name, dash) for lr, role, name, dash in steps if lr is not None]
    return {"data": data, "layout": layout}
