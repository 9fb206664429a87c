"""`autolrs demo`: a training on scikit-learn's digits, watched live, then an honest comparison with a tuned cosine."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from autolrs.cli.common import clock, console, fail, need, number, plain_errors, table
from autolrs.core.settings import PRESETS
from autolrs.core.strategies import STRATEGIES

if TYPE_CHECKING:
    from autolrs.bench.digits import Digits

COSINE_LRS = (3e-4, 1e-3, 3e-3, 1e-2, 3e-2)  # half a decade apart, across the interval that AutoLRS searches
_DEFAULT = "horizon" if "horizon" in STRATEGIES else "paper"


def _one_of(choices: tuple[str, ...]) -> Any:
    def check(value: str) -> str:
        if value not in choices:
            raise typer.BadParameter(f"must be one of {', '.join(choices)}; got {value!r}")
        return value

    return check


def demo(
    strategy: Annotated[
        str,
        typer.Option(metavar="|".join(STRATEGIES), callback=_one_of(tuple(STRATEGIES)), help="How LRs are chosen."),
    ] = _DEFAULT,
    preset: Annotated[
        str,
        typer.Option(
            metavar="|".join(PRESETS),
            callback=_one_of(tuple(PRESETS)),
            help="Of strategy paper. strict: Algorithm 1 as printed. practical: with guards and a final anneal.",
        ),
    ] = "practical",
    steps: Annotated[int, typer.Option(min=100, help="Committed optimizer steps.")] = 1500,
    run_dir: Annotated[Path, typer.Option(help="Run folder; if it holds a run already, a new one beside it.")] = Path(
        "runs/demo"
    ),
    seed: Annotated[int, typer.Option(min=0, help="Of the weights, the batches and the search.")] = 0,
    compare: Annotated[bool, typer.Option(help="Train at a tuned cosine schedule, too.")] = True,
) -> None:
    """Watch autolrs train a small network on scikit-learn's digits, then see how a tuned cosine schedule does.

    Takes under a minute, downloads nothing, and leaves a run folder to look at.

    \b
    Examples:
      autolrs demo
      autolrs demo --strategy paper --preset strict
      autolrs demo --steps 600 --no-compare --run-dir runs/short
    """
    need("torch", "'autolrs[torch]'", "the demo")
    need("sklearn", "scikit-learn", "the demo")
    out = console()
    with _one_thread():
        folder = free_folder(run_dir)
        found = _run_autolrs(out, strategy, preset, steps, folder, seed)
        rows = [found]
        if compare:
            rows.append(_run_cosine(out, steps, seed))
    _closing(out, rows, steps)
    _leave_report(out, folder)


@dataclass(frozen=True)
class Outcome:
    """One line of the closing table."""

    name: str
    loss: float
    accuracy: float
    raw_steps: int
    how: str
    seconds: float


def _run_autolrs(out: Console, strategy: str, preset: str, steps: int, folder: Path, seed: int) -> Outcome:
    from autolrs import AutoLRS
    from autolrs.bench import digits

    task = digits.build(seed)
    paper = strategy == "paper"
    title = f"autolrs demo: {strategy}{f' ({preset})' if paper else ''}, {steps:,} steps of Adam on digits"
    out.print(escape(title + f", into {folder}"), soft_wrap=True)
    begun = time.perf_counter()
    with plain_errors():
        auto = AutoLRS(
            task.model,
            task.optimizer,
            total_steps=steps,
            lr=digits.LR,
            strategy=strategy,
            evaluate=task.validate,
            run_dir=folder,
            seed=seed,
            progress=True,
            **(_paper_settings(preset, steps) if paper else {}),
        )
        for batch in auto.batches(task.loader):
            auto.step(task.train_step(batch))
    passes = auto.session.state.evaluations
    worth = passes * auto.settings.evaluate_steps
    how = (
        f"1 run, search included; {passes} validation passes are worth {worth:.0f} steps more, "
        f"which makes {(auto.raw_steps + worth) / steps:.2f} x"
    )
    return Outcome("AutoLRS", *task.score(task.test), auto.raw_steps, how, time.perf_counter() - begun)


def _paper_settings(preset: str, steps: int) -> dict[str, Any]:
    """The paper's curriculum scaled down: an eighth of the run, then quarters. Shorter probes forecast mere noise."""
    first = max(40, math.ceil(steps / 8))  # a probe, a tenth of it, needs 4 steps
    longest = max(first, math.ceil(steps / 4))
    return {"preset": preset, "stage_steps": first, "max_stage_steps": longest, "eval_every": 10}


def _run_cosine(out: Console, steps: int, seed: int) -> Outcome:
    """A cosine whose peak was tuned on another seed, on validation loss: what a careful person would do."""
    from autolrs.bench import digits

    begun = time.perf_counter()
    runs = [(seed + 1, lr) for lr in COSINE_LRS]
    tuned: list[tuple[float, float]] = []
    with _bar(out) as bar:
        line = bar.add_task("", total=(len(runs) + 1) * steps)

        def train(seed: int, lr: float, label: str) -> Digits:
            bar.update(line, description=label)
            if not out.is_terminal:
                out.print(label, markup=False)
            return digits.train_cosine(seed, lr, steps, on_step=lambda: bar.advance(line))

        for number_, (other, lr) in enumerate(runs, start=1):
            task = train(other, lr, f"cosine from {lr:g}, tuning run {number_} of {len(runs)} (seed {other})")
            loss = task.validate()
            tuned.append((loss if math.isfinite(loss) else math.inf, lr))
        best = min(tuned)[1]
        task = train(seed, best, f"cosine from {best:g}, the final run (seed {seed})")
    how = f"{len(runs)} tuning runs on another seed + 1; peak LR {best:g}"
    raw = (len(runs) + 1) * steps
    return Outcome("tuned cosine", *task.score(task.test), raw, how, time.perf_counter() - begun)


def _bar(out: Console) -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(bar_width=24), TimeRemainingColumn())
    return Progress(*columns, console=out, transient=True, disable=not out.is_terminal)


def _closing(out: Console, rows: list[Outcome], steps: int) -> None:
    from autolrs.bench import digits

    images = len(digits.build(0).test[1])
    result = table("", ">test loss", ">test accuracy", ">steps run", ">cost", ">time", title="\nResult")
    for row in rows:
        result.add_row(
            row.name,
            number(row.loss),
            f"{row.accuracy:.1%}",
            f"{row.raw_steps:,}",
            f"{row.raw_steps / steps:.2f} x",
            clock(row.seconds),
        )
    out.print(result)
    for row in rows:
        out.print(escape(f"{row.name}: {row.how}."), style="dim", soft_wrap=True)
    for line in verdict(rows, steps, images):
        out.print(escape(line), soft_wrap=True)


def verdict(rows: list[Outcome], steps: int, images: int) -> list[str]:
    """The comparison in words, whoever wins, and what it cost."""
    auto = rows[0]
    ratio = f"{auto.raw_steps / steps:.2f} x the cost of one training"
    cost = f"AutoLRS ran {auto.raw_steps:,} steps for a schedule of {steps:,}: {ratio}."
    if len(rows) == 1:
        return [cost]
    rival = rows[1]
    # One training's accuracy on n images has this standard error; the seed's luck comes on top.
    error = math.sqrt(max(rival.accuracy * (1 - rival.accuracy), 1e-4) / images)
    if auto.loss == rival.loss:
        who = "Both have the same test loss"
    else:
        first, second = (auto, rival) if auto.loss < rival.loss else (rival, auto)
        name = first.name[0].upper() + first.name[1:]
        who = f"{name} has the lower test loss, {number(first.loss)} to {number(second.loss)}"
    noise = f"one seed and {images} test images, so accuracies within about {2 * error:.1%} of each other are a tie"
    return [f"{who} ({noise}).", cost + f" Tuning the cosine cost {rival.raw_steps / steps:.0f} x."]


def _leave_report(out: Console, folder: Path) -> None:
    """The report and the picture are the last thing the demo says; without their packages it says what to install."""
    from autolrs.report import page
    from autolrs.report.load import load
    from autolrs.report.plots import run_picture

    run = load(folder)
    report, picture = folder / "report.html", folder / "run.png"
    try:
        run_picture(run.info, picture, title="autolrs demo: digits")
        out.print(escape(f"Picture: {picture}"), soft_wrap=True)
        page.write([run], report, paths=[str(folder)])
        out.print(escape(f"Report:  {report} (open it in a browser)"), soft_wrap=True)
    except ImportError as error:
        out.print(escape(f"Not all was drawn: {error}"), soft_wrap=True)
    out.print(escape(f"More:    autolrs show {folder}"), soft_wrap=True)


def free_folder(wanted: Path) -> Path:
    """`wanted`, or `wanted`-2, -3, ... if it holds a run already."""
    folder, number_ = wanted, 1
    while (folder / "journal.jsonl").exists():
        number_ += 1
        folder = wanted.with_name(f"{wanted.name}-{number_}")
    if folder.exists() and not folder.is_dir():
        fail(f"{folder} is a file, not a run folder")
    return folder


class _one_thread:  # noqa: N801 - used as a function, like contextlib's own
    """Networks this small run faster on one thread; the caller's setting is put back."""

    def __enter__(self) -> None:
        import torch

        self._before = torch.get_num_threads()
        torch.set_num_threads(1)

    def __exit__(self, *_: object) -> None:
        import torch

        torch.set_num_threads(self._before)
