"""`autolrs range-test [FILE:FUNCTION]`: which LRs are worth searching, on the user's own model."""

from __future__ import annotations

import importlib
import importlib.util
import math
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.markup import escape

from autolrs.cli.common import console, fail, need, number, plain_errors


def range_test(
    factory: Annotated[
        str | None,
        typer.Argument(
            metavar="[FILE.py:FUNCTION]",
            help="A function without arguments that returns (model, optimizer, loader, loss_fn), where loss_fn(batch) "
            "is the loss; a module name works as well. Left out: the demo's digits.",
            show_default=False,
        ),
    ] = None,
    steps: Annotated[int, typer.Option(min=8, help="Training steps, undone afterwards.")] = 200,
    low: Annotated[float, typer.Option(help="LR to begin with.")] = 1e-7,
    high: Annotated[float, typer.Option(help="LR to end with, unless the loss explodes before.")] = 10.0,
    plot: Annotated[Path | None, typer.Option(metavar="FILE", help="Draw a picture, too (PNG).")] = None,
) -> None:
    """Raise the LR step by step, see where the loss falls, and suggest the interval to search.

    \b
    Examples:
      autolrs range-test
      autolrs range-test train.py:make --steps 200
      autolrs range-test mypackage.training:make --plot range.png
    """
    if not 0 < low < high < math.inf:
        raise typer.BadParameter(f"--low and --high must be 0 < low < high, got {low:g} and {high:g}")
    need("torch", "'autolrs[torch]'", "range-test")
    make = _load(factory) if factory is not None else _digits()
    model, optimizer, loader, loss_fn = _unpack(make, factory)
    from autolrs import range_test as run

    with plain_errors():
        found = run(model, optimizer, loader, loss_fn, lr=(low, high), steps=steps)
    out = console()
    for line in chart(found.lrs, found.losses, (found.lr_min, found.lr_max)):
        out.print(escape(line))
    out.print(f"\n[bold]lr=({found.lr_min:.2g}, {found.lr_max:.2g})[/]  ({escape(found.note)})")
    if plot is not None:
        from autolrs.report.plots import range_picture

        with plain_errors():
            range_picture(list(found.lrs), list(found.losses), (found.lr_min, found.lr_max), plot)
        out.print(escape(f"picture: {plot}"))


def _digits() -> Callable[[], Any]:
    need("sklearn", "scikit-learn", "range-test without FILE.py:FUNCTION")
    from autolrs.bench import digits

    return digits.make


def _load(target: str) -> Callable[[], Any]:
    """The function that `target` names."""
    place, _, name = target.rpartition(":")
    if not place or not name:
        raise typer.BadParameter(f"expected FILE.py:FUNCTION or module:FUNCTION, got {target!r}")
    try:
        module = _import_file(Path(place)) if place.endswith(".py") else _import_module(place)
    except FileNotFoundError:
        fail(f"{place} does not exist")
    except Exception as error:
        fail(f"cannot import {place}: {type(error).__name__}: {error}")
    function = getattr(module, name, None)
    if not callable(function):
        fail(f"{place} has no function {name!r}")
    return function


def _import_module(name: str) -> Any:
    # A script started as `autolrs` does not have the working directory on its path, as `python -m` would.
    if "" not in sys.path:
        sys.path.insert(0, "")
    return importlib.import_module(name)


def _import_file(path: Path) -> Any:
    if not path.exists():
        raise FileNotFoundError(path)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(path.resolve().parent))
    try:
        sys.modules[path.stem] = module  # dataclasses and pickles look their module up by name
        spec.loader.exec_module(module)
    finally:
        sys.path.pop(0)
    return module


def _unpack(make: Callable[[], Any], target: str | None) -> tuple[Any, Any, Any, Any]:
    try:
        made = make()
    except Exception as error:
        fail(f"{target} failed: {type(error).__name__}: {error}")
    if not (isinstance(made, tuple) and len(made) == 4 and callable(made[3])):
        fail(f"{target} must return (model, optimizer, loader, loss_fn), got {_describe(made)}")
    return made


def _describe(value: Any) -> str:
    return f"({', '.join(type(v).__name__ for v in value)})" if isinstance(value, tuple) else type(value).__name__


def chart(
    lrs: Sequence[float], losses: Sequence[float], interval: tuple[float, float], *, width: int = 60, height: int = 8
) -> list[str]:
    """Loss over log LR as lines of text, the suggested interval marked below.

    >>> chart([0.1, 1.0, 10.0], [2.0, 1.0, 3.0], (0.1, 1.0), width=3, height=2)
    ['        3 |  *', '        1 |** ', '          +---', '           == ', '           0.1 to 10']
    """
    x, y = np.log(np.asarray(lrs, float)), np.asarray(losses, float)
    edges = np.linspace(x[0], x[-1], width)
    finite = np.isfinite(y)
    value = np.interp(edges, x[finite], y[finite]) if finite.any() else np.zeros(width)
    low = float(value.min())
    # What explodes at the end must not flatten the rest.
    high = max(
        min(float(value.max()), low + 4 * (float(value[0]) - low)) if value[0] > low else float(value.max()), low
    )
    row = np.round((np.clip(value, low, high) - low) / ((high - low) or 1.0) * (height - 1)).astype(int)
    lines = []
    for level in range(height - 1, -1, -1):
        label = low + (high - low) * level / (height - 1)
        shown = f"{label:9.3g}" if level in (0, height - 1) else " " * 9
        lines.append(f"{shown} |" + "".join("*" if r == level else " " for r in row))
    lines.append(" " * 10 + "+" + "-" * width)
    inside = (edges >= math.log(interval[0]) - 1e-9) & (edges <= math.log(interval[1]) + 1e-9)
    lines.append(" " * 11 + "".join("=" if i else " " for i in inside))
    left, right = number(lrs[0]), number(lrs[-1])
    lines.append(" " * 11 + (left + right.rjust(width - len(left)) if width > 20 else f"{left} to {right}"))
    return lines
