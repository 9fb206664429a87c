"""The commands put together."""

from __future__ import annotations

from typing import Annotated

import typer

from autolrs import __version__
from autolrs.cli.bench import bench
from autolrs.cli.demo import demo
from autolrs.cli.doctor import doctor
from autolrs.cli.export import export
from autolrs.cli.range_test import range_test
from autolrs.cli.report import report
from autolrs.cli.serve import serve
from autolrs.cli.show import show

app = typer.Typer(
    name="autolrs",
    rich_markup_mode="rich",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(demo)
app.command()(show)
app.command()(report)
app.command()(serve)
app.command()(export)
app.command("range-test")(range_test)
app.command()(doctor)
app.add_typer(bench, name="bench")


def _version(wanted: bool) -> None:
    if wanted:
        print(f"autolrs {__version__}")
        raise typer.Exit


@app.callback()
def autolrs(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Learning-rate schedules, found while the network trains.

    \b
    Examples:
      autolrs demo                               watch it work, in under a minute
      autolrs show runs/demo                     what a run did, in words
      autolrs report runs/demo                   the same as a page to look at
      autolrs export runs/demo --to torch        its schedule as a few lines of Python
      autolrs range-test train.py:make           which LRs are worth searching
    """
