"""`autolrs report RUN [RUN ...] -o report.html`: one self-contained page about a run, or about several side by side."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from autolrs.cli.common import plain_errors


def report(
    runs: Annotated[
        list[Path],
        typer.Argument(metavar="RUN...", help="Run folders, or their journal.jsonl files.", show_default=False),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="Where to.")] = Path("report.html"),
    target: Annotated[
        float | None,
        typer.Option(help="Loss that several runs are timed by; by default the lowest that all of them came to."),
    ] = None,
) -> None:
    """One HTML file that shows what a run did and why; several runs are compared. It needs no network.

    Works for a run that is under way or was killed, too.

    \b
    Examples:
      autolrs report runs/demo
      autolrs report runs/a runs/b -o compared.html
    """
    from autolrs.report import page
    from autolrs.report.load import load

    with plain_errors():
        loaded = [load(run) for run in runs]
        twice = {name for name, count in Counter(run.name for run in loaded).items() if count > 1}
        named = [
            replace(run, name=str(path)) if run.name in twice else run for run, path in zip(loaded, runs, strict=True)
        ]
        page.write(named, output, target=target, paths=[str(run) for run in runs])
    typer.echo(f"wrote {output}: {len(runs)} run{'s' * (len(runs) > 1)}, {output.stat().st_size / 1e6:.1f} MB")
