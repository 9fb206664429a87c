"""`autolrs bench`: what autolrs itself costs, and how its schedules do beside others on small tasks."""

from __future__ import annotations

from collections.abc import Collection
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated

import typer

from autolrs.cli.bench_data import data
from autolrs.cli.bench_smoke import forecasters, series, smoke
from autolrs.cli.common import console, fail, need, number, plain_errors, table
from autolrs.cli.training import resumable

bench = typer.Typer(
    no_args_is_help=True,
    help="""Measure autolrs.

    \b
    Examples:
      autolrs bench overhead
      autolrs bench list
      autolrs bench run --task digits-mlp --method horizon,cosine --out rows.jsonl
      autolrs bench table rows.jsonl
      autolrs bench data
      autolrs bench smoke
    """,
)
bench.command()(data)
bench.command()(series)
bench.command()(smoke)


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


@bench.command("list")
def list_() -> None:
    """Tasks and methods that `bench run` takes.

    \b
    Examples:
      autolrs bench list
    """
    need("torch", "'autolrs[torch]'", "bench list")
    from importlib.util import find_spec

    from autolrs.bench import tuning
    from autolrs.bench.methods import METHODS
    from autolrs.bench.tasks import TASKS

    tasks = table("task", "profile", ">steps", "LRs", "held out", "data", title="Tasks")
    missing = []
    for task in (one.at(profile) for one in TASKS.values() for profile in one.profiles):
        try:
            task.find_data()
            here = "here"
        except FileNotFoundError as error:
            here = "missing"
            if str(error) not in missing:
                missing.append(str(error))
        held_out = "held out" if task.held_out else "-"
        lrs = f"{task.lr[0]:g} to {task.lr[1]:g}"
        tasks.add_row(task.name, task.profile, f"{task.total_steps:,}", lrs, held_out, here)
    methods = table("method", "peak", ">tuning", "whose", "installed", title="\nMethods")
    methods.columns[-1].min_width = 33  # the command to install it is whole or useless
    some = TASKS["digits-mlp"]
    for method in METHODS.values():
        installed = method.needs is None or find_spec(method.needs) is not None
        peak, whose = "tuned" if method.tuned else "-", "ours" if method.ours else "rival"
        runs = str(len(tuning.grid(some, method)) * len(tuning.TUNE_SEEDS) or "-")
        how = "yes" if installed else rf"no: pip install 'autolrs\[{method.extra}]'"
        methods.add_row(method.name, peak, runs, whose, how)
    out = console()
    out.print(tasks)
    for help_text in missing:
        out.print(f"missing: {help_text}", markup=False, style="dim", soft_wrap=True)
    out.print(methods)


@bench.command()
def run(
    task: Annotated[str, typer.Option("--task", metavar="NAME[,NAME]", help="Tasks; see `autolrs bench list`.")],
    method: Annotated[str, typer.Option("--method", metavar="NAME[,NAME]", help="Methods; see the same list.")],
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="Rows are added here; those there are not rerun.")],
    seeds: Annotated[str, typer.Option(metavar="N[,N]", help="Seeds to report; tuning has its own.")] = "0,1,2,3,4",
    profile: Annotated[str, typer.Option(help="smoke (seconds), cpu (minutes) or paper (the real thing).")] = "cpu",
) -> None:
    """Train tasks by methods and keep a row of JSON per run.

    A tuned method first gets its peak LR from runs on another seed. Interrupt it when you like: the same command goes
    on where it stopped.

    \b
    Examples:
      autolrs bench run --task digits-mlp --method horizon,cosine --out rows.jsonl
      autolrs bench run --task digits-mlp,digits-cnn --method wsd --seeds 0,1 --out rows.jsonl
      autolrs bench run --task vgg16-cifar10 --method paper,hand-tuned --profile paper --out rows.jsonl
    """
    need("torch", "'autolrs[torch]'", "bench run")
    from autolrs.bench import runner
    from autolrs.bench.methods import METHODS
    from autolrs.bench.tasks import TASKS

    tasks, methods, numbers = names_of(task, "task", TASKS), names_of(method, "method", METHODS), seeds_of(seeds)
    with resumable(out, one_thread=profile != "paper"):
        runner.complete(out, tasks, methods, numbers, typer.echo, profile)
    typer.echo(f"complete: {out}")


@bench.command("table")
def table_(
    rows: Annotated[list[Path], typer.Argument(metavar="ROWS...", help="Files of `bench run`.", show_default=False)],
    name: Annotated[
        str, typer.Option("--name", metavar="NAME", help="Which table; `all` prints every one.")
    ] = "headline",
    form: Annotated[str, typer.Option("--format", metavar="FORMAT", help="markdown, text or csv.")] = "markdown",
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="FILE", help="Write the tables here instead.")
    ] = None,
    plots: Annotated[
        Path | None, typer.Option("--plots", metavar="FOLDER", help="Also draw LR and loss curves, a file a task.")
    ] = None,
) -> None:
    """Score rows: `headline` is a table per task and one over all tasks; the others are named after the paper's.

    profiles, paired, methods, tau-max, random-search, grid-search, ablation, hypergradient, variability, fine-tuning;
    forecasters takes files of `autolrs bench series`.

    \b
    Examples:
      autolrs bench table rows.jsonl
      autolrs bench table rivals.jsonl ours.jsonl -o results.md --plots pictures
      autolrs bench table rows.jsonl --name tau-max --format csv
    """
    need("torch", "'autolrs[torch]'", "bench table")
    from autolrs.bench import plots as pictures
    from autolrs.bench import runner
    from autolrs.bench.tables import FORMATS, TABLES

    (name,) = names_of(name, "table", [*TABLES, "forecasters", "all"])[:1]
    if form not in FORMATS:
        fail(f"unknown format {form!r}; one of {', '.join(FORMATS)}")
    with plain_errors():
        for path in rows:
            if not path.exists():
                fail(f"{path} does not exist")
        if name == "forecasters":
            tables, found = forecasters(rows), []
        else:
            found = [row for path in rows for row in runner.read_rows(path)]
            if not any(row["phase"] == "report" for row in found) and name != "hypergradient":
                fail(f"no reported run in {', '.join(map(str, rows))}: nothing to score")
            chosen = TABLES if name == "all" else {name: TABLES[name]}
            tables = [table for make in chosen.values() for table in make(found)]
            if not tables:
                fail(f"no run in {', '.join(map(str, rows))} that table {name} is made of")
        text = FORMATS[form](tables)
        if output is None:
            typer.echo(text, nl=False)
        else:
            output.write_text(text, encoding="utf-8")
            typer.echo(f"tables: {output}")
        if plots is not None:
            need("matplotlib", "'autolrs[report]'", "bench table --plots")
            typer.echo(f"pictures: {', '.join(map(str, pictures.draw(found, plots)))}")


def names_of(text: str, kind: str, known: Collection[str]) -> list[str]:
    """The names in a comma-separated list, each once; an unknown one is a failure that offers the nearest."""
    names = list(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if not names:
        fail(f"no {kind} given; see: autolrs bench list")
    for name in names:
        if name not in known:
            near = get_close_matches(name, known, n=1, cutoff=0.0)
            where = "autolrs bench table --help" if kind == "table" else "autolrs bench list"
            fail(f"unknown {kind} {name!r}; did you mean {near[0]!r}? All: {where}")
    return names


def seeds_of(text: str) -> list[int]:
    """Whole numbers, not negative, in a comma-separated list, each once."""
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not parts or not all(part.isdecimal() for part in parts):
        raise typer.BadParameter(f"must be whole numbers such as 0,1,2; got {text!r}", param_hint="--seeds")
    return list(dict.fromkeys(map(int, parts)))
