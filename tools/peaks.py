"""Which peak LR is best for a whole run, and how far from it the horizon strategy's rule ends.

    python tools/peaks.py record ROWS.jsonl TASK[:CHANGE...] [SEED ...]   # search, then whole runs at five peaks
    python tools/peaks.py score [ROWS.jsonl]                              # what the rule loses to the best of them

CHANGE is `sgd`, `adam` or `adamw` (another optimizer), `b4` (batches four times as large), `t0.3` (fewer steps), or
`plain` (no averaging). The rows behind docs/research-log.md, "A correction for each task", are the default of `score`.
"""

from __future__ import annotations

import json
import math
import sys
from collections import defaultdict
from contextlib import nullcontext
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from scipy.interpolate import PchipInterpolator

from autolrs.core.settings import Settings
from autolrs.core.strategies import horizon
from autolrs.core.strategies.horizon_peak import centre, correction, shortfalls
from autolrs.core.strategies.horizon_schedule import full_profile

ROWS = Path(__file__).parents[1] / "benchmarks" / "results" / "peaks" / "rows.jsonl"
OCTAVES = (-2, -1, 0, 1, 2)  # peaks of the whole runs, from the one that the rule takes
MARKS = (0.025, 0.05, 0.075, 0.1)  # shares of the run at which the validation loss is taken as well
Row = dict[str, Any]


def build(name: str, seed: int) -> tuple[Any, int, bool]:
    """A task with its changes, its steps, and whether weights are averaged."""
    import torch

    from autolrs.bench.tasks import TASKS
    from autolrs.pytorch.auto import AVERAGED_STEPS

    task, *changes = name.split(":")
    bundle, steps = TASKS[task].build(seed), TASKS[task].total_steps
    torch.manual_seed(seed)
    optimizers = {
        "sgd": lambda weights: torch.optim.SGD(weights, lr=0.1, momentum=0.9),
        "adam": lambda weights: torch.optim.Adam(weights, lr=1e-3),
        "adamw": lambda weights: torch.optim.AdamW(weights, lr=1e-3, weight_decay=0.05),
    }
    for change in changes:
        if change in optimizers:
            bundle.optimizer = optimizers[change](bundle.model.parameters())
        elif change.startswith("b"):
            bundle.loader.batch_size = round(bundle.loader.batch_size * float(change[1:]))
        elif change.startswith("t"):
            steps = round(steps * float(change[1:]))
        elif change != "plain":
            raise SystemExit(f"unknown change {change!r} in {name!r}")
    return bundle, steps, steps >= AVERAGED_STEPS and "plain" not in changes


def whole_run(name: str, seed: int, peak: float) -> tuple[list[Any], list[Any]]:
    """[peak, validation loss, test loss] at the end, None if it diverged; [share, validation loss] on the way."""
    from autolrs.bench.methods._method import endless, step
    from autolrs.pytorch.averaging import Averager
    from autolrs.rivals.schedules import set_lr

    bundle, total, averaged = build(name, seed)
    averager = Averager(bundle.model, bundle.optimizer) if averaged else None
    config = Settings.make(strategy="horizon", total_steps=total, averaging=averaged)
    lrs = [s.lr_at(i) for s in full_profile(config, total, peak) for i in range(s.steps)]
    marks, seen = {round(share * total): share for share in MARKS}, []
    for done, batch in enumerate(islice(endless(bundle.loader), total), start=1):
        set_lr(bundle.optimizer, lrs[done - 1])
        bundle.advance(done - 1)
        if not math.isfinite(step(bundle, bundle.optimizer, batch).item()):
            return [peak, None, None], seen
        if averager is not None:
            averager.update()
        if done in marks:
            with nullcontext() if averager is None else averager.averaged():
                seen.append([marks[done], bundle.evaluate()])
    if averager is not None:
        averager.finish(average=True)
    return [peak, bundle.evaluate(), bundle.test()], seen


def record(name: str, seed: int) -> Row:
    """Search as `horizon` does, then train whole runs around the peak that it takes."""
    from autolrs import AutoLRS
    from autolrs.bench.methods._method import step

    bundle, total, averaged = build(name, seed)
    auto = AutoLRS(bundle.model, bundle.optimizer, total_steps=total, evaluate=bundle.evaluate, averaging=averaged)
    for batch in auto.batches(bundle.loader):
        if not auto.step(step(bundle, bundle.optimizer, batch)).exploring:
            break
    state = auto.session.state
    peak, _ = horizon.choose(state)
    finite = [(probe.lr, horizon._value(probe)) for probe in state.probes[1:]]
    runs = [whole_run(name, seed, peak * 2.0**octave) for octave in OCTAVES]
    return {
        "kind": ("short " if total < 1000 else "") + ("averaged" if averaged else "plain"),
        "task": name.replace(":plain", ""),
        "seed": seed,
        "total_steps": total,
        "landmark": horizon.landmark(state),
        "start": horizon._start(state),
        "minis": [[lr, value if math.isfinite(value) else None] for lr, value in finite],
        "runs": [run for run, _ in runs],
        "race": [[run[0], seen] for run, seen in runs],
    }


def rule(row: Row) -> float:
    """The peak that the strategy takes on these miniature runs."""
    config = Settings.make(
        strategy="horizon", total_steps=row["total_steps"], averaging=row["kind"].endswith("averaged")
    )
    mark, start = row["landmark"], row["start"]
    losses = {round(math.log2(lr / mark)): math.inf if loss is None else loss for lr, loss in row["minis"]}
    shift = correction(config, start, min(losses.values()))
    return float(mark * 2.0 ** (centre(shortfalls(losses, start)) - shift))


def regret(row: Row, peak: float) -> float:
    """By which share the loss at this peak lies above that at the best one, between the peaks that were run."""
    ends = sorted((math.log2(lr), loss) for lr, _, loss in row["runs"] if loss is not None)
    octaves, losses = np.array([x for x, _ in ends]), np.log([loss for _, loss in ends])
    curve = PchipInterpolator(octaves, losses)
    lowest = min(losses.min(), curve(np.linspace(octaves[0], octaves[-1], 400)).min())
    at = min(max(math.log2(peak), octaves[0]), octaves[-1])
    return math.expm1(float(curve(at) - lowest))


def score(rows: list[Row]) -> dict[str, dict[str, float]]:
    """Kind -> task -> what the rule loses there, in the mean over seeds."""
    found: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        found[row["kind"]][row["task"]].append(regret(row, rule(row)))
    return {kind: {task: float(np.mean(all_)) for task, all_ in tasks.items()} for kind, tasks in found.items()}


def read(path: Path) -> list[Row]:
    """The rows of a file."""
    return [json.loads(line) for line in path.read_text().splitlines()]


def main(arguments: list[str]) -> None:
    """The command line."""
    if arguments[:1] == ["record"] and len(arguments) > 2:
        import torch

        torch.set_num_threads(1)
        for seed in map(int, arguments[3:] or ["100"]):
            row = record(arguments[2], seed)
            with Path(arguments[1]).open("a") as file:
                file.write(json.dumps(row) + "\n")
            print(f"{row['task']} seed {seed}: the rule loses {regret(row, rule(row)):.1%}")
    elif arguments[:1] == ["score"]:
        for kind, tasks in score(read(Path(arguments[1]) if arguments[1:] else ROWS)).items():
            print(f"{kind}: {np.mean(list(tasks.values())):.2%} in the mean")
            for task, loss in tasks.items():
                print(f"  {task:26}{loss:7.1%}")
    else:
        raise SystemExit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
