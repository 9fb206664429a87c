"""`autolrs bench smoke` and `autolrs bench series`: everything once in small, and loss series for forecasters."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from autolrs.cli.common import need, plain_errors
from autolrs.cli.training import resumable

SMOKE_TASK = "digits-mlp"  # its data ships with a package: all methods meet on it
SMOKE_METHODS = ("horizon", "paper", "cosine")  # on every task
SERIES_STEPS = 400


def smoke(
    out: Annotated[Path, typer.Option("--out", metavar="FOLDER", help="Rows, series, tables and pictures.")] = Path(
        "runs/smoke"
    ),
) -> None:
    """Run the smoke profile of everything: all tasks by a few methods, all methods on one task, all tables.

    Tasks whose data and methods whose package is missing are named and left out. Under ten minutes on two cores; the
    same command goes on where it stopped.

    \b
    Examples:
      autolrs bench smoke
      autolrs bench smoke --out runs/smoke
    """
    need("torch", "'autolrs[torch]'", "bench smoke")
    from autolrs.bench import forecasting, plots, runner
    from autolrs.bench.methods import METHODS
    from autolrs.bench.tables import FORMATS, TABLES
    from autolrs.bench.tasks import TASKS

    with resumable(out):
        tasks, methods = _present(), []
        for method in METHODS.values():
            if method.needs is not None and find_spec(method.needs) is None:
                typer.echo(f"left out: method {method.name} needs {method.needs}")
            elif SMOKE_TASK in tasks and method.refuses(TASKS[SMOKE_TASK].at("smoke")) is None:
                methods.append(method.name)
        rows_file, series_file = out / "rows.jsonl", out / "series.jsonl"
        runner.complete(rows_file, tasks, SMOKE_METHODS, [0], typer.echo, "smoke")
        if methods:
            runner.complete(rows_file, [SMOKE_TASK], methods, [0], typer.echo, "smoke")
        if SMOKE_TASK in tasks and find_spec("statsmodels") is not None:
            forecasting.record(series_file, TASKS[SMOKE_TASK].at("smoke"), 0, SERIES_STEPS, typer.echo)
        rows = runner.read_rows(rows_file)
        for name, make in TABLES.items():
            (out / f"{name}.md").write_text(FORMATS["markdown"](make(rows)), encoding="utf-8")
        if series_file.exists():
            (out / "forecasters.md").write_text(FORMATS["markdown"](forecasters([series_file])), encoding="utf-8")
        if find_spec("matplotlib") is not None:
            plots.draw(rows, out / "plots")
    typer.echo(f"complete: {len(rows)} runs, tables and pictures in {out}")


def _present() -> list[str]:
    """Tasks whose data is here; the others are said."""
    from autolrs.bench.tasks import TASKS

    found = []
    for name, task in TASKS.items():
        try:
            task.at("smoke").find_data()
            found.append(name)
        except FileNotFoundError as error:
            typer.echo(f"left out: task {name}: {error}")
    return found


def series(
    task: Annotated[str, typer.Option("--task", metavar="NAME[,NAME]", help="Tasks; see `autolrs bench list`.")],
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="Series are added here; those there are kept.")],
    seeds: Annotated[str, typer.Option(metavar="N[,N]", help="Seeds.")] = "0",
    steps: Annotated[
        int, typer.Option(min=80, help="Length of a series [tau]; a tenth of it is forecast from.")
    ] = 1000,
    profile: Annotated[str, typer.Option(help="smoke, cpu or paper.")] = "cpu",
) -> None:
    """Record training losses at constant LRs, for `autolrs bench table --name forecasters`.

    \b
    Examples:
      autolrs bench series --task digits-mlp --out series.jsonl
      autolrs bench table series.jsonl --name forecasters
    """
    need("torch", "'autolrs[torch]'", "bench series")
    from autolrs.bench import forecasting
    from autolrs.bench.tasks import TASKS
    from autolrs.cli.bench import names_of, seeds_of

    names, numbers = names_of(task, "task", TASKS), seeds_of(seeds)
    with plain_errors():
        chosen = [TASKS[name].at(profile) for name in names]
        for one in chosen:
            one.find_data()
        for one in chosen:
            for seed in numbers:
                forecasting.record(out, one, seed, steps, typer.echo)
    typer.echo(f"complete: {out}")


def forecasters(files: list[Path]) -> list:  # type: ignore[type-arg]
    """The table of forecasters over the series in these files."""
    need("statsmodels", "'autolrs[bench]'", "the table of forecasters")
    from autolrs.bench import forecasting
    from autolrs.bench.tables import Table

    found = forecasting.compare(one for file in files for one in forecasting.read(file))
    lines = [
        [one.forecaster, f"{100 * one.error:.1f} %", f"{100 * one.worst:.1f} %", f"{one.squared:.3g}",
         f"{one.rank:.2f}", f"{1000 * one.seconds:.1f} ms"]
        for one in found
    ]  # fmt: skip
    note = f"{found[0].series} series; the loss at tau from the first tenth of it. The paper judges by squared error."
    columns = ["forecaster", "median error", "90th percentile", "squared error", "rank correlation", "time"]
    return [Table("Forecasters", columns, lines, note)]
