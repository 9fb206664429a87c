"""The report: one self-contained HTML file about one run or several."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from html import escape
from importlib.resources import files
from pathlib import Path

import autolrs
from autolrs.report import sections, specs
from autolrs.report.compare import Comparison, compare
from autolrs.report.html import Part, embedded, figure, table
from autolrs.report.load import LoadedRun
from autolrs.report.theme import DARK, LIGHT

# Nothing may be fetched from anywhere; the served page also asks its own server.
_POLICY = "default-src 'none'; script-src 'unsafe-inline'{own}; style-src 'unsafe-inline'; img-src data: blob:{connect}"


def write(
    runs: Sequence[LoadedRun], path: str | Path, *, target: float | None = None, paths: Sequence[str] = ()
) -> None:
    """Write the report of `runs` to `path`. `paths` are what to type for each run in a command."""
    Path(path).write_text(render(runs, target=target, paths=paths), encoding="utf-8")


def render(
    runs: Sequence[LoadedRun],
    *,
    target: float | None = None,
    paths: Sequence[str] = (),
    script: str | None = None,
    live: tuple[str, str] | None = None,
) -> str:
    """The whole page as text.

    Args:
        target: loss by which several runs are timed; by default the lowest that all of them came to.
        script: address of plotly.js; by default it is in the page.
        live: address to ask for the journal's stamp, and its present value; the page reloads when they differ.
    """
    if not runs:
        raise ValueError("a report needs at least one run, got none")
    typed = list(paths) or [run.name for run in runs]
    part = Part()
    if len(runs) > 1:
        _comparison(part, compare([(run.name, run.info) for run in runs], target))
        body = f"<h1>{len(runs)} runs compared</h1>{_navigation(runs)}{part.html}"
        for i, (run, path) in enumerate(zip(runs, typed, strict=True)):
            own = sections.run_part(run, f"run{i}", path)
            part.figures.update(own.figures)
            top = f'<p class="lead">{escape(sections.headline(run))}</p>{sections.cards(run)}{_contents(own)}'
            body += f'<article id="run{i}"><h1>{escape(run.name)} {_status(run)}</h1>{top}{own.html}</article>'
    else:
        part = sections.run_part(runs[0], "run0", typed[0])
        top = f'<p class="lead">{escape(sections.headline(runs[0]))}</p>{sections.cards(runs[0])}{_contents(part)}'
        body = f"<h1>{escape(runs[0].name)} {_status(runs[0])}</h1>{top}{part.html}"
    title = runs[0].name if len(runs) == 1 else f"{len(runs)} runs"
    return _document(title, body, part.figures, script, live)


def _document(
    title: str, body: str, figures: dict[str, object], script: str | None, live: tuple[str, str] | None
) -> str:
    asked = "" if live is None else f' data-live="{escape(live[0])}" data-stamp="{escape(live[1])}"'
    policy = _POLICY.format(
        own="" if script is None else " 'self'", connect="" if live is None else "; connect-src 'self'"
    )
    drawing = f"<script>{plotly_js()}</script>" if script is None else f'<script src="{escape(script)}"></script>'
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="generator" content="autolrs {autolrs.__version__}">
<title>{escape(title)} - autolrs report</title>
<style>{_asset("page.css")}</style>
<noscript><style>.plot, .picker {{ display: none; }} [data-of] {{ display: block !important; }}</style></noscript>
</head>
<body{asked}>
<a class="skip" href="#main">Skip to the report</a>
<header class="top"><div class="wrap"><p class="brand">autolrs report</p></div></header>
<main id="main"><div class="wrap">
{body}
</div></main>
<footer><div class="wrap">Made by autolrs {autolrs.__version__} from the journal; it needs no network.</div></footer>
{embedded("themes", {"light": LIGHT, "dark": DARK})}
{embedded("figures", figures)}
{drawing}
<script>{_asset("page.js")}</script>
</body>
</html>
"""


def plain_document(title: str, body: str, *, refresh: int) -> str:
    """A page without figures that loads itself again every `refresh` seconds; `body` is HTML."""
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta http-equiv="refresh" content="{refresh}">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width, initial-scale=1"><title>{escape(title)}</title>
<style>{_asset("page.css")}</style></head>
<body><header class="top"><div class="wrap"><p class="brand">autolrs</p></div></header>
<main class="wrap">{body}</main></body></html>
"""


def _comparison(part: Part, comparison: Comparison) -> None:
    lr, loss = specs.compare_specs(comparison)
    known = [run for run in comparison.runs if run.final_loss is not None and math.isfinite(run.final_loss)]
    told = ""
    if known:
        best = min(known, key=lambda run: run.final_loss or 0.0)
        told = f"{best.name} ends at the lowest training loss, {best.final_loss:.4g}. "
        told += "One run each: a few per cent may be luck."
    target = "target" if comparison.target is None else f"loss {comparison.target:.4g}"
    columns = (
        "run",
        "strategy",
        ">final loss",
        ">steps trained",
        f">steps to {target}",
        ">all steps",
        ">cost",
        ">validations",
        "state",
    )
    rows = [
        (
            run.name,
            run.strategy,
            run.final_loss,
            run.committed,
            "never" if run.to_target is None else run.to_target,
            run.raw,
            "-" if run.ratio is None else f"{run.ratio:.2f} x",
            run.evaluations,
            "finished" if run.finished else "not finished",
        )
        for run in comparison.runs
    ]
    best_row = [i for i, run in enumerate(comparison.runs) if known and run is best]
    inner = f"<p>{escape(told)}</p>" + table("The runs in numbers", columns, rows, bold=best_row)
    inner += figure("compare-loss", "Loss over committed steps: the running mean of each run.")
    inner += figure("compare-lr", "The learning rates they were trained with.")
    part.add("compare", "Comparison", inner, lr=lr, loss=loss)


def _navigation(runs: Sequence[LoadedRun]) -> str:
    links = [("compare", "Comparison"), *((f"run{i}", run.name) for i, run in enumerate(runs))]
    return _links("Runs", links)


def _contents(part: Part) -> str:
    return _links("Sections", part.links)


def _links(name: str, links: Sequence[tuple[str, str]]) -> str:
    items = "".join(f'<li><a href="#{key}">{escape(title)}</a></li>' for key, title in links)
    return f'<nav aria-label="{name}"><ul>{items}</ul></nav>'


def _status(run: LoadedRun) -> str:
    if run.info.finished is not None:
        return f'<span class="pill good">finished: {escape(run.info.finished)}</span>'
    return f'<span class="pill warn">not finished: {run.info.cost.committed:,} steps trained</span>'


@cache
def _asset(name: str) -> str:
    return (files("autolrs.report") / "assets" / name).read_text(encoding="utf-8")


def plotly_js() -> str:
    """Plotly's script: its basic bundle (lines and bars), a quarter of the whole, so that a page opens at once."""
    return _asset("plotly-basic.min.js")
