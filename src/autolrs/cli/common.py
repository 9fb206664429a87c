"""What the commands share: consoles, failing with one line, finding a run; numbers and tables as people read them."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, NoReturn

import typer
from rich.console import Console

from autolrs.core.types import Event
from autolrs.progress.panel import table
from autolrs.progress.words import clock, number
from autolrs.run import journal

__all__ = ["Run", "clock", "console", "fail", "need", "number", "plain_errors", "read_run", "table"]

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
