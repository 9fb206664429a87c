"""`autolrs export RUN --to json|csv|torch|optax`: the found schedule, for use without autolrs."""

from __future__ import annotations

import json
from enum import Enum
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from autolrs.cli.common import Run, fail, plain_errors, read_run
from autolrs.core import engine
from autolrs.core.schedule import Schedule


class Format(str, Enum):
    """What to write."""

    json = "json"
    csv = "csv"
    torch = "torch"
    optax = "optax"


def export(
    run: Run,
    to: Annotated[Format, typer.Option(help="json and csv are data; torch and optax are a Python file.")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Where to; standard output if left out.")
    ] = None,
) -> None:
    """The schedule a run found, as data or as Python that runs without autolrs.

    RUN may also be a schedule.json. An unfinished run gives what it has committed so far.

    \b
    Examples:
      autolrs export runs/demo --to torch -o lr_schedule.py
      autolrs export runs/demo --to csv | head
      autolrs export runs/demo --to json -o schedule.json
    """
    schedule = _schedule(run)
    if not schedule.segments:
        fail(f"{run} has committed no step yet: there is no schedule to export")
    text = render(schedule, to)
    if output is None:
        typer.echo(text, nl=False)
        return
    with plain_errors():
        output.write_text(text)
    typer.echo(f"wrote {output}: {schedule.total_steps:,} steps", err=True)


def _schedule(run: Path) -> Schedule:
    with plain_errors():
        if run.is_file() and run.suffix == ".json":
            return Schedule.load(run)
        return engine.fold(read_run(run)).schedule
    raise AssertionError


def render(schedule: Schedule, to: Format) -> str:
    """The whole file as text."""
    if to is Format.json:
        return json.dumps(schedule.to_json()) + "\n"
    if to is Format.csv:
        with TemporaryDirectory() as folder:
            path = Path(folder) / "schedule.csv"
            schedule.to_csv(path)
            return path.read_bytes().decode().replace("\r\n", "\n")
    rows = "".join(f"    ({s.steps}, {s.lr_start!r}, {s.lr_end!r}),\n" for s in schedule.segments)
    snippet = _TORCH if to is Format.torch else _OPTAX
    return snippet.replace("TOTAL", f"{schedule.total_steps}").replace("ROWS\n", rows)


_TORCH = '''"""A learning-rate schedule of TOTAL steps, found by autolrs; needs PyTorch only.

    scheduler = make_scheduler(optimizer)
    ...
    optimizer.step(); scheduler.step()      # once per optimizer step
"""

from torch.optim.lr_scheduler import LambdaLR

# (steps, LR at the start, LR at the end); the LR moves linearly in between.
SEGMENTS = [
ROWS
]


def lr_at(step):
    """LR of step `step`, counted from 0; past the end the last LR stays."""
    for steps, start, end in SEGMENTS:
        if step < steps:
            return start + (end - start) * (step / steps)
        step -= steps
    return SEGMENTS[-1][2]


def make_scheduler(optimizer):
    """A scheduler that sets the first parameter group to `lr_at`; the others keep their ratio to it."""
    base = optimizer.param_groups[0].get("initial_lr", optimizer.param_groups[0]["lr"])
    if base <= 0:
        raise ValueError("give the optimizer a positive lr: the schedule is applied as a factor of it")
    return LambdaLR(optimizer, lambda step: lr_at(step) / base)


if __name__ == "__main__":
    total = sum(steps for steps, _, _ in SEGMENTS)
    for step in range(0, total, max(1, total // 10)):
        print(step, lr_at(step))
'''

_OPTAX = '''"""A learning-rate schedule of TOTAL steps, found by autolrs; needs JAX only.

    optimizer = optax.adam(schedule)
"""

import jax.numpy as jnp

# (steps, LR at the start, LR at the end); the LR moves linearly in between.
SEGMENTS = [
ROWS
]
STEPS = jnp.asarray([steps for steps, _, _ in SEGMENTS])
START = jnp.asarray([start for _, start, _ in SEGMENTS])
END = jnp.asarray([end for _, _, end in SEGMENTS])
ENDS = jnp.cumsum(STEPS)


def schedule(count):
    """LR of step `count`, counted from 0; traceable; past the end the last LR stays."""
    i = jnp.minimum(jnp.searchsorted(ENDS, count, side="right"), len(SEGMENTS) - 1)
    done = jnp.clip((count - (ENDS[i] - STEPS[i])) / STEPS[i], 0.0, 1.0)
    return START[i] + (END[i] - START[i]) * done


if __name__ == "__main__":
    total = int(ENDS[-1])
    for step in range(0, total, max(1, total // 10)):
        print(step, float(schedule(step)))
'''
