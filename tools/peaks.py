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
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from scipy.interpolate import PchipInterpolator

from autolrs.core.settings import AVERAGING_DEFAULTS, Settings
from autolrs.core.strategies import horizon

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


def train_step(bundle: Any, batch: Any) -> Any:
    """One optimizer step; its loss."""
    import torch

    bundle.optimizer.zero_grad()
    loss = bundle.loss(batch)
    loss.backward()
    if bundle.clip:
        torch.nn.utils.clip_grad_norm_(bundle.model.parameters(), bundle.clip)
    bundle.optimizer.step()
    return loss


def batches(loader: Any) -> Iterator[Any]:
    """Epoch after epoch."""
    while True:
        yield from loader


def whole_run(name: str, seed: int, peak: float) -> tuple[list[Any], list[Any]]:
    """[peak, validation loss, test loss] at the end, None if it diverged; [share, validation loss] on the way."""
    from autolrs.pytorch.averaging import Averager

    bundle, total, averaged = build(name, seed)
    averager = Averager(bundle.model, bundle.optimizer) if averaged else None
    config = Settings.make(strategy="horizon", total_steps=total, averaging=averaged)
    lrs = [s.lr_at(i) for s in horizon.full_profile(config, total, peak) for i in range(s.steps)]
    marks, seen = {round(share * total): share for share in MARKS}, []
    for step, batch in zip(range(total), batches(bundle.loader), strict=False):
        for group in bundle.optimizer.param_groups:
            group["lr"] = lrs[step]
        bundle.advance(step)
        if not math.isfinite(train_step(bundle, batch).item()):
            return [peak, None, None], seen
        if averager is not None:
            averager.update()
        if step + 1 in marks:
            if averager is None:
                seen.append([marks[step + 1], bundle.evaluate()])
            else:
                with averager.averaged():
                    seen.append([marks[step + 1], bundle.evaluate()])
    if averager is not None:
        averager.finish(average=True)
    return [peak, bundle.evaluate(), bundle.test()], seen


def record(name: str, seed: int) -> Row:
    """Search as `horizon` does, then train whole runs around the peak that it takes."""
    from autolrs import AutoLRS

    bundle, total, averaged = build(name, seed)
    auto = AutoLRS(bundle.model, bundle.optimizer, total_steps=total, evaluate=bundle.evaluate, averaging=averaged)
    for batch in auto.batches(bundle.loader):
        if not auto.step(train_step(bundle, batch)).exploring:
            break
    state = auto.session.state
    peak, _ = horizon.choose(state)
    finite = [(probe.lr, horizon._value(probe)) for probe in state.probes[1:]]
    runs = [whole_run(name, seed, peak * 2.0**octave) for octave in OCTAVES]
    return {
        "kind": ("short " if total < 1000 else "") + ("averaged" if averaged else "plain"),
        "task": name.removesuffix(":plain"),
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
    tried = [(math.log2(lr), value) for lr, value in row["minis"] if value is not None]
    octaves, values = np.array([x for x, _ in tried]), np.array([value for _, value in tried])
    best, start = values.min(), row["start"]
    weights = np.exp(-(values - best) / (start - best) / horizon.TEMPERATURE)
    least, usual, most = horizon.DESCENTS
    descent = min(max(math.log(start / best), least), most)
    shift = AVERAGING_DEFAULTS["horizon_shift"] if row["kind"].endswith("averaged") else Settings.horizon_shift
    shift += horizon.SHORTEST_SHIFT if row["kind"].startswith("short") else 0.0
    shift -= horizon.SHIFT_PER_DESCENT * (descent - usual)
    return float(2.0 ** (weights @ octaves / weights.sum() - shift))


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
