"""What the commands share: consoles, failing with one line, finding a run, and numbers as people read them."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Annotated, NoReturn

import typer
from rich.console import Console
from rich.table import Table

from autolrs.core.types import Event
from autolrs.run import journal

Run = Annotated[Path, typer.Argument(metavar="RUN", help="A run folder, or its journal.jsonl.", show_default=False)]


def console() -> Console:
    """Standard output as it is now, because tests replace sys.stdout. A pipe has no width: tables get 120 columns."""
    wide = None if sys.stdout.isatty() or "COLUMNS" in os.environ else 120
    return Console(highlight=False, width=wide)


def fail(message: str) -> NoReturn:
    """One line on stderr, exit code 1."""
    typer.echo(f"autolrs: {message}", err=True)
    raise typer.Exit(1)


@contextmanager
def plain_errors() -> Iterator[None]:
    """Expected errors (an unreadable file, a missing extra, a bad value) end the command with one line."""
    try:
        yield
    except (OSError, ValueError, ImportError) as error:
        text = str(error) if not isinstance(error, OSError) else _os_message(error)
        fail(" ".join(text.split()))


def _os_message(error: OSError) -> str:
    return f"{error.filename}: {error.strerror}" if error.filename and error.strerror else str(error)


def read_run(path: Path) -> list[Event]:
    """The events of a run, or a failure that says what is wrong with it."""
    with plain_errors():
        if not path.exists():
            fail(f"{path} does not exist")
        events = journal.read(path)
        if not events:
            fail(f"{path} holds a journal without events: the run never began")
        return events
    raise AssertionError


def need(module: str, extra: str, purpose: str) -> None:
    """Fail with the name of the extra to install where `module` is missing."""
    from importlib.util import find_spec

    if find_spec(module) is None:
        fail(f"{purpose} needs {module}: pip install {extra}")


def table(*columns: str, title: str | None = None) -> Table:
    """A table in the house style; a column name that begins with '>' is set to the right."""
    made = Table(title=title, title_justify="left", title_style="bold", header_style="bold", box=None, pad_edge=False)
    made.padding = (0, 2, 0, 0)
    for column in columns:
        made.add_column(column.lstrip(">"), justify="right" if column.startswith(">") else "left", no_wrap=True)
    return made


def number(value: float | None, digits: int = 3) -> str:
    """Few significant digits; a dash where there is nothing.

    >>> number(0.0012345), number(None), number(float("inf"))
    ('0.00123', '-', 'inf')
    """
    if value is None or math.isnan(value):
        return "-"
    return f"{value:.{digits}g}"


def sparkline(values: Sequence[float], width: int = 32) -> str:
    """Values as one line of block characters, averaged down to `width`; '!' where one is not finite.

    >>> sparkline([3, 2, 1, 0])
    '█▆▃▁'
    """
    if not values:
        return ""
    count = min(width, len(values))
    cuts = [round(i * len(values) / count) for i in range(count + 1)]
    means = [sum(values[a:b]) / (b - a) for a, b in pairwise(cuts)]
    finite = [mean for mean in means if math.isfinite(mean)]
    low, high = (min(finite), max(finite)) if finite else (0.0, 0.0)
    scale = 7 / (high - low) if high > low else 0.0
    return "".join("▁▂▃▄▅▆▇█"[round((mean - low) * scale)] if math.isfinite(mean) else "!" for mean in means)


def clock(seconds: float) -> str:
    """Minutes and seconds.

    >>> clock(75.2)
    '1:15'
    """
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"
