"""`autolrs bench`: what autolrs itself costs, and how its schedules do beside others on small tasks."""

from __future__ import annotations

from collections.abc import Collection
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated

import typer

from autolrs.cli.common import console, fail, need, number, plain_errors, table

bench = typer.Typer(
    no_args_is_help=True,
    help="""Measure autolrs.

    \b
    Examples:
      autolrs bench overhead
      autolrs bench list
      autolrs bench run --task digits-mlp --method horizon,cosine --out rows.jsonl
      autolrs bench table rows.jsonl
    """,
)


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

    from autolrs.bench.methods import METHODS
    from autolrs.bench.tasks import TASKS

    tasks = table("task", ">steps", "LRs", "held out", "data", title="Tasks")
    missing = []
    for task in TASKS.values():
        try:
            task.find_data()
            data = "here"
        except FileNotFoundError as error:
            data = "missing"
            if str(error) not in missing:
                missing.append(str(error))
        held_out = "held out" if task.held_out else "-"
        tasks.add_row(task.name, f"{task.total_steps:,}", f"{task.lr[0]:g} to {task.lr[1]:g}", held_out, data)
    methods = table("method", "peak LR", "whose", "installed", title="\nMethods")
    for method in METHODS.values():
        here = method.needs is None or find_spec(method.needs) is not None
        peak, whose = "tuned" if method.tuned else "-", "ours" if method.ours else "rival"
        methods.add_row(method.name, peak, whose, "yes" if here else r"no: pip install 'autolrs\[bench]'")
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
) -> None:
    """Train tasks by methods and keep a row of JSON per run.

    A tuned method first gets its peak LR from runs on another seed. Interrupt it when you like: the same command goes
    on where it stopped.

    \b
    Examples:
      autolrs bench run --task digits-mlp --method horizon,cosine --out rows.jsonl
      autolrs bench run --task digits-mlp,digits-cnn --method wsd --seeds 0,1 --out rows.jsonl
    """
    need("torch", "'autolrs[torch]'", "bench run")
    import torch

    from autolrs.bench import runner
    from autolrs.bench.methods import METHODS
    from autolrs.bench.tasks import TASKS

    tasks, methods, numbers = _names(task, "task", TASKS), _names(method, "method", METHODS), _seeds(seeds)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # networks this small run faster on one thread, and rows are reproducible
    try:
        with plain_errors():
            runner.complete(out, tasks, methods, numbers, say=typer.echo)
    except runner.BusyError as error:
        fail(str(error))
    except KeyboardInterrupt:
        typer.echo(f"autolrs: interrupted; finished runs are in {out}, and the same command goes on there", err=True)
        raise typer.Exit(130) from None
    finally:
        torch.set_num_threads(threads)
    typer.echo(f"complete: {out}")


@bench.command("table")
def table_(
    rows: Annotated[list[Path], typer.Argument(metavar="ROWS...", help="Files of `bench run`.", show_default=False)],
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="FILE", help="Write the tables here instead.")
    ] = None,
) -> None:
    """Score rows: a table in Markdown per task, and one over all tasks.

    \b
    Examples:
      autolrs bench table rows.jsonl
      autolrs bench table rivals.jsonl ours.jsonl -o results.md
    """
    need("torch", "'autolrs[torch]'", "bench table")
    from autolrs.bench import runner
    from autolrs.bench.score import score
    from autolrs.bench.tables import headline

    with plain_errors():
        for path in rows:
            if not path.exists():
                fail(f"{path} does not exist")
        scores = score(row for path in rows for row in runner.read_rows(path))
        if not scores:
            fail(f"no reported run in {', '.join(map(str, rows))}: nothing to score")
        text = headline(scores)
        if output is None:
            typer.echo(text, nl=False)
        else:
            output.write_text(text, encoding="utf-8")
            typer.echo(f"tables: {output}")


def _names(text: str, kind: str, known: Collection[str]) -> list[str]:
    """The names in a comma-separated list, each once; an unknown one is a failure that offers the nearest."""
    names = list(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if not names:
        fail(f"no {kind} given; see: autolrs bench list")
    for name in names:
        if name not in known:
            near = get_close_matches(name, known, n=1, cutoff=0.0)
            fail(f"unknown {kind} {name!r}; did you mean {near[0]!r}? All: autolrs bench list")
    return names


def _seeds(text: str) -> list[int]:
    """Whole numbers, not negative, in a comma-separated list, each once."""
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not parts or not all(part.isdecimal() for part in parts):
        raise typer.BadParameter(f"must be whole numbers such as 0,1,2; got {text!r}", param_hint="--seeds")
    return list(dict.fromkeys(map(int, parts)))
