"""`autolrs bench overhead`: what autolrs itself costs, beside the bars it is held to."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from autolrs.cli.common import console, need, number, plain_errors, table

bench = typer.Typer(
    no_args_is_help=True,
    help="""Measure autolrs.

    \b
    Examples:
      autolrs bench overhead
      autolrs bench overhead --json overhead.json
    """,
)


@bench.callback()
def _group() -> None:
    # Without a callback, Typer would fold a group of one command into that command.
    pass


@bench.command()
def overhead(
    quick: Annotated[bool, typer.Option("--quick", help="Fewer repetitions, smaller sizes; not for quoting.")] = False,
    json: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Keep the raw rows, with versions.")
    ] = None,
) -> None:
    """Time per step, per decision, per snapshot and per simulated run, in one go.

    Medians, with the thing and what it is compared to measured in turn. Takes about a minute and 1 GB of memory.

    \b
    Examples:
      autolrs bench overhead
      autolrs bench overhead --json overhead.json
      autolrs bench overhead --quick
    """
    need("torch", "'autolrs[torch]'", "bench overhead")
    from autolrs.bench import overhead as measuring

    out = console()
    rows = table("what", ">measured", ">bar", "verdict", "beside it")
    done = []
    for row in measuring.measure(quick=quick):
        done.append(row)
        if not out.is_terminal:
            out.print(f"{row.name}: {number(row.value)} {row.unit}", markup=False, soft_wrap=True)
        verdict = "[green]within[/]" if row.within else "[red]over[/]"
        rows.add_row(row.name, f"{number(row.value)} {row.unit}", f"{number(row.bar)} {row.unit}", verdict, row.beside)
    out.print(rows)
    if json is not None:
        with plain_errors():
            measuring.save(done, json, quick=quick)
        out.print(f"raw rows: {json}", markup=False)
