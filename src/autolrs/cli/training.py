"""The frame of commands that train benchmark tasks: one thread, plain errors, an interrupt that loses nothing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import typer

from autolrs.cli.common import fail, plain_errors


@contextmanager
def resumable(out: Path, *, one_thread: bool = True) -> Iterator[None]:
    """What trains inside keeps its rows in `out`; small networks are faster, and reproducible, on `one_thread`."""
    import torch

    from autolrs.bench import runner

    threads = torch.get_num_threads()
    if one_thread:
        torch.set_num_threads(1)
    try:
        with plain_errors():
            yield
    except runner.BusyError as error:
        fail(str(error))
    except KeyboardInterrupt:
        typer.echo(f"autolrs: interrupted; finished runs are in {out}, and the same command goes on there", err=True)
        raise typer.Exit(130) from None
    finally:
        torch.set_num_threads(threads)
