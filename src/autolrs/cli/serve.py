"""`autolrs serve RUNS`: the reports of a folder of runs in a browser, refreshed while training goes on."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from autolrs.cli.common import fail, plain_errors


def serve(
    runs: Annotated[
        Path, typer.Argument(metavar="RUNS", help="A run folder, or a folder of run folders.", show_default=False)
    ],
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes any that is free.")] = 8765,
) -> None:
    """Show the reports of all runs in a folder at a local address; pages follow runs that are under way.

    Reads only, and answers this machine only. Stop it with Ctrl+C.

    \b
    Examples:
      autolrs serve runs
      autolrs serve runs/demo --port 0
    """
    from autolrs.report.server import ReportServer

    if not runs.exists():
        fail(f"{runs} does not exist")
    with plain_errors():
        server = ReportServer(runs, port)
    typer.echo(f"serving {runs} at {server.url} (Ctrl+C stops)")
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        typer.echo("stopped")
    finally:
        server.server_close()
