"""Which peak LR is best for a whole run, and how far from it the horizon strategy's rule ends.

    python tools/peaks.py record ROWS.jsonl TASK[:CHANGE...] [SEED ...]   # search, then whole runs at five peaks
    python tools/peaks.py score [ROWS.jsonl]                              # what the rule loses to the best of them
    python tools/peaks.py search SEARCHES.jsonl TASK[:CHANGE...] SEED ... # searches alone
    python tools/peaks.py searched [SEARCHES.jsonl [RUNS.jsonl]]          # what the rule loses there, by those runs
    python tools/peaks.py again [TASK ...]                                # do the benchmark's searches end as they did?
    python tools/peaks.py hold HELD.jsonl HOLD[xFACTOR] TASK[:CHANGE...]  # the rule's peak (times FACTOR) held so long
    python tools/peaks.py held [HELD.jsonl]                               # what that is worth against no hold
    python tools/peaks.py warm WARMUPS.jsonl SHARE PEAK TASK[:CHANGE...] SEED ...  # held until half, so long a warm-up
    python tools/peaks.py warmed [WARMUPS.jsonl]                          # losses by warm-up and peak
    python tools/peaks.py product PRODUCTS.jsonl RULE TASK[:CHANGE...] SEED ...    # whole runs of the product, named so
    python tools/peaks.py slow RAMPS.jsonl TASK[:CHANGE...] SEED ...      # slow ramps of several lengths
    python tools/peaks.py slowed [RAMPS.jsonl [RUNS.jsonl]]               # what a peak so far below their break loses

CHANGE is `sgd`, `adam`, `adamw`, `rmsprop`, `rmsprop9` (momentum .9) or `adagrad` (another optimizer), `b4` (batches
four times as large), `t0.3` (fewer steps), `x32` (so many times the loss, in training and validation) or `plain` (no
averaging). The rows behind docs/research-log.md, "A correction for each task" and "Holding the peak", are the
defaults of `score`, `searched` and `held`; those of transformer-wmt14 are on the catalogues of one machine, which the
task had before. Whole runs are recorded without a hold, but for those of `runs-short.jsonl`, which go with the
searches of `searches-short.jsonl` ("Between the LRs that were tried"), and `warmups.jsonl` ("How long a warm-up").
`slow-ramps.jsonl` and `slow-runs.jsonl` (made by `warm`) are behind "The slow ramp"; the tasks had their first form
then, whose columns differ by less than .1 % in size. `deep-searches.jsonl` and `deep-runs.jsonl` are behind "Deep
falls"; not all of their tasks are in the benchmark.
"""

from __future__ import annotations

import json
import math
import sys
from collections import defaultdict
from collections.abc import Callable
from contextlib import nullcontext
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from scipy.interpolate import PchipInterpolator

from autolrs.core.averaging import by_default
from autolrs.core.settings import Settings
from autolrs.core.strategies.horizon_choice import choose
from autolrs.core.strategies.horizon_minis import outcomes, start
from autolrs.core.strategies.horizon_peak import after_deep_fall, centre, correction, descent, fell_deep, shortfalls
from autolrs.core.strategies.horizon_plan import goes_by_ramps
from autolrs.core.strategies.horizon_ramp import first_edge, landmark
from autolrs.core.strategies.horizon_rules import LONG, off_by, rules, warmup_by
from autolrs.core.strategies.horizon_schedule import full_profile
from autolrs.core.strategies.horizon_slow import BEYOND, course

RESULTS = Path(__file__).parents[1] / "benchmarks" / "results" / "peaks"
ROWS, SEARCHES, HELD, WARMUPS = (RESULTS / f"{name}.jsonl" for name in ("rows", "searches", "held", "warmups"))
HEADLINE = RESULTS.parent / "horizon.jsonl"
SGD_TASKS = ("digits-mlp", "fashion-cnn", "bible-lstm")  # of the development tasks
RAMPS, SLOW_RUNS = (RESULTS / f"slow-{name}.jsonl" for name in ("ramps", "runs"))
USUAL = {"digits-mlp:adam": 0.0125, "fashion-autoencoder": 0.0117}  # of those that fall deep; older rows do not say
LENGTHS = ((30, 6), (40, 6), (40, 8), (60, 8), (60, 10))  # of slow ramps: steps, octaves below the first one's edge
BELOW = (1.5, 1.75, 2.0, 2.25, 2.5, 3.0)
MOST = 10.0  # times the best loss: what died lost no more than that
OCTAVES = (-2, -1, 0, 1, 2)  # peaks of the whole runs, from the one that the rule takes
# The rule is for runs with a hold; the recorded ones have none and, but for short ones, want so much less taken off.
FOR_THE_HOLD = {"averaged": 0.1}
MARKS = (0.025, 0.05, 0.075, 0.1)  # shares of the run at which the validation loss is taken as well
Row = dict[str, Any]


def build(name: str, seed: int) -> tuple[Any, int, bool]:
    """A task with its changes, its steps, and whether weights are averaged."""
    import torch

    from autolrs.bench.tasks import TASKS

    task, *changes = name.split(":")
    bundle, steps = TASKS[task].build(seed), TASKS[task].total_steps
    torch.manual_seed(seed)
    optimizers = {
        "sgd": lambda weights: torch.optim.SGD(weights, lr=0.1, momentum=0.9),
        "adam": lambda weights: torch.optim.Adam(weights, lr=1e-3),
        "rmsprop": lambda weights: torch.optim.RMSprop(weights),
        "rmsprop9": lambda weights: torch.optim.RMSprop(weights, momentum=0.9),
        "adagrad": lambda weights: torch.optim.Adagrad(weights),
        "adamw": lambda weights: torch.optim.AdamW(weights, lr=1e-3, weight_decay=0.05),
    }
    for change in changes:
        if change in optimizers:
            bundle.optimizer = optimizers[change](bundle.model.parameters())
        elif change.startswith("b"):
            bundle.loader.batch_size = round(bundle.loader.batch_size * float(change[1:]))
        elif change.startswith("t"):
            steps = round(steps * float(change[1:]))
        elif change.startswith("x"):
            bundle.loss, bundle.evaluate = (_times(float(change[1:]), of) for of in (bundle.loss, bundle.evaluate))
        elif change != "plain":
            raise SystemExit(f"unknown change {change!r} in {name!r}")
    return bundle, steps, by_default(steps) and "plain" not in changes


def _times(factor: float, measure: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *arguments: factor * measure(*arguments)


def whole_run(
    name: str, seed: int, peak: float, hold: float = 0.0, warmup: float | None = None
) -> tuple[list[Any], list[Any]]:
    """[peak, validation loss, test loss] at the end, None if it diverged; [share, validation loss] on the way."""
    from autolrs.bench.methods._method import endless, step
    from autolrs.pytorch.averaging import Averager
    from autolrs.rivals.schedules import set_lr

    bundle, total, averaged = build(name, seed)
    averager = Averager(bundle.model, bundle.optimizer) if averaged else None
    config = Settings.make(strategy="horizon", total_steps=total, averaging=averaged, hold_until=hold)
    lrs = [s.lr_at(i) for s in full_profile(config, total, peak, warmup) for i in range(s.steps)]
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


def search(name: str, seed: int) -> Row:
    """Search as `horizon` does, and stop before the run."""
    from autolrs import AutoLRS
    from autolrs.bench.methods._method import step

    bundle, total, averaged = build(name, seed)
    auto = AutoLRS(bundle.model, bundle.optimizer, total_steps=total, evaluate=bundle.evaluate, averaging=averaged)
    for batch in auto.batches(bundle.loader):
        if not auto.step(step(bundle, bundle.optimizer, batch)).exploring:
            break
    state = auto.session.state
    finite = [(probe.lr, value) for probe, value in outcomes(state)]
    return {
        "kind": ("short " if total < 1000 else "") + ("averaged" if averaged else "plain"),
        "task": name.replace(":plain", ""),
        "seed": seed,
        "total_steps": total,
        "landmark": landmark(state),
        "start": start(state),
        "minis": [[lr, value if math.isfinite(value) else None] for lr, value in finite],
        "usual": state.settings.usual_lr,
        "peak": choose(state)[0],
    }


def product(rule: str, name: str, seed: int) -> Row:
    """What the strategy comes to in the whole: its peak, and the test loss after its run."""
    from autolrs import AutoLRS
    from autolrs.bench.methods._method import step

    bundle, total, averaged = build(name, seed)
    auto = AutoLRS(bundle.model, bundle.optimizer, total_steps=total, evaluate=bundle.evaluate, averaging=averaged)
    for batch in auto.batches(bundle.loader):
        bundle.advance(auto.committed_steps)
        auto.step(step(bundle, bundle.optimizer, batch))
    looks = auto.session.state.evaluations * auto.session.state.settings.evaluate_cost
    cost, peak = (auto.raw_steps + looks) / total, max(segment.lr_end for segment in auto.schedule.segments)
    return {"rule": rule, "task": name, "seed": seed, "peak": peak, "test": bundle.test(), "cost": cost}


def record(name: str, seed: int) -> Row:
    """A search, and whole runs around the peak that it takes."""
    row = search(name, seed)
    runs = [whole_run(name, seed, unheld(row) * 2.0**octave) for octave in OCTAVES]
    return {**row, "runs": [run for run, _ in runs], "race": [[run[0], seen] for run, seen in runs]}


def rule(row: Row) -> float:
    """The peak that the strategy takes on these miniature runs, but for what is usual of longer runs: it came later."""
    config = Settings.make(
        strategy="horizon",
        total_steps=row["total_steps"],
        averaging=row["kind"].endswith("averaged"),
        proportional_steps=is_sgd(row["task"]),
    )
    mark, begin = row["landmark"], row["start"]
    losses = {round(math.log2(lr / mark)): math.inf if loss is None else loss for lr, loss in row["minis"]}
    best = min(losses.values())
    shift = correction(config, begin, best)
    if not goes_by_ramps(config):  # as these searches did not
        shift += off_by(rules(config), descent(begin, best))
    short, usual = shortfalls(losses, begin), row.get("usual", USUAL.get(row["task"]))
    peak = float(mark * 2.0 ** (centre(short) - shift))
    if usual is None or not fell_deep(begin, best):
        return peak
    return after_deep_fall(peak, usual, short.get(round(math.log2(usual / mark)), math.inf))


def is_sgd(name: str) -> bool:
    """Whether a task with its changes is trained by SGD."""
    task, *changes = name.split(":")
    return "sgd" in changes or (task in SGD_TASKS and not {"adam", "adamw"} & {*changes})


def unheld(row: Row) -> float:
    """The peak that it would take for a run without a hold."""
    return rule(row) * 2.0 ** FOR_THE_HOLD.get(row["kind"], 0.0)


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
        found[row["kind"]][row["task"]].append(regret(row, unheld(row)))
    return {kind: {task: float(np.mean(all_)) for task, all_ in tasks.items()} for kind, tasks in found.items()}


def searched(rows: list[Row], runs: list[Row]) -> dict[str, list[float]]:
    """Task -> what the rule loses in each search, by whole runs of that task on whatever seeds there are.

    Those of `warmups.jsonl` are held, as the product's are, and the rule's peak is for that.
    """
    found: dict[str, list[float]] = defaultdict(list)
    held_runs = warmed(runs) if "warmup" in runs[0] else None
    for row in rows:
        if held_runs is not None:
            like, peak = _after_its_warmup(row, held_runs), rule(row)
        else:
            like = [run for run in runs if (run["kind"], run["task"]) == (row["kind"], row["task"])]
            peak = unheld(row)
        found[row["task"]].append(float(np.mean([regret(run, peak) for run in like])))
    return dict(found)


def _after_its_warmup(row: Row, held_runs: dict[tuple[str, int], dict[float, dict[float, float]]]) -> list[Row]:
    """The whole runs of a search's task after the recorded warm-up that is nearest to what the rule takes there."""
    share = warmup_by(LONG, descent(row["start"], min(loss for _, loss in row["minis"] if loss is not None)))
    found = []
    for (task, _), shares in held_runs.items():
        losses = shares[min(shares, key=lambda recorded: abs(recorded - share))]
        if task == row["task"] and len(losses) > 1:
            found.append({"runs": [(lr, math.nan, loss) for lr, loss in losses.items() if math.isfinite(loss)]})
    return found


def again(tasks: list[str]) -> list[tuple[str, int, float, float]]:
    """Task, seed, the peak of the benchmark's row, and that of the same search now; the first five seeds."""
    rows = [row for row in read(HEADLINE) if row["method"] == "horizon" and row["seed"] < 5]
    shown = [row for row in rows if not tasks or row["task"] in tasks]
    return [(row["task"], row["seed"], row["peak"], search(row["task"], row["seed"])["peak"]) for row in shown]


def hold(name: str, until: float, factor: float) -> list[Row]:
    """Whole runs at the peak for no hold, times `factor`, held until a share of the run; one per recorded search."""
    kinds = ("plain", "short plain") if "plain" in name.split(":") else ("averaged", "short averaged")
    found = [row for row in read(ROWS) if row["task"] == name.replace(":plain", "") and row["kind"] in kinds]
    if not found:
        raise SystemExit(f"no search of {name!r} is among the recorded ones: record it first")
    rows = []
    for row in found:
        (peak, validation, test), _ = whole_run(name, row["seed"], factor * unheld(row), until)
        key = {name: row[name] for name in ("kind", "task", "seed")}
        rows.append({**key, "hold": until, "factor": factor, "peak": peak, "validation": validation, "test": test})
    return rows


def held(rows: list[Row]) -> dict[str, dict[str, dict[str, float]]]:
    """Kind -> hold (and factor) -> task -> test loss against no hold at the rule's peak, in the mean over seeds."""
    plain = {(r["kind"], r["task"], r["seed"]): r["test"] for r in rows if (r["hold"], r["factor"]) == (0, 1)}
    found: dict[str, Any] = defaultdict(lambda: defaultdict(lambda: defaultdict(list)))
    for row in rows:
        shape = f"{row['hold']:g}" + (f"x{row['factor']:g}" if row["factor"] != 1 else "")
        base = plain.get((row["kind"], row["task"], row["seed"]))
        if base is not None and shape != "0":
            found[row["kind"]][shape][row["task"]].append(math.inf if row["test"] is None else row["test"] / base)
    return {
        kind: {shape: {task: float(np.mean(all_)) for task, all_ in tasks.items()} for shape, tasks in shapes.items()}
        for kind, shapes in found.items()
    }


def warm(name: str, seed: int, peak: float, warmup: float) -> Row:
    """A whole run after so long a warm-up, held until half of it."""
    (_, validation, test), _ = whole_run(name, seed, peak, 0.5, warmup)
    key = {"kind": "averaged", "task": name, "seed": seed, "hold": 0.5, "warmup": warmup}
    return {**key, "peak": peak, "validation": validation, "test": test}


def warmed(rows: list[Row]) -> dict[tuple[str, int], dict[float, dict[float, float]]]:
    """(Task, seed) -> warm-up -> peak -> test loss."""
    found: Any = defaultdict(lambda: defaultdict(dict))
    for row in rows:
        found[row["task"], row["seed"]][row["warmup"]][row["peak"]] = math.inf if row["test"] is None else row["test"]
    return dict(found)


def slow(name: str, seed: int) -> Row:
    """Slow ramps of several lengths, by the edge of the first ramp of a search."""
    from autolrs import AutoLRS
    from autolrs.bench.methods._method import endless, step
    from autolrs.rivals.schedules import set_lr

    bundle, total, averaged = build(name, seed)
    auto = AutoLRS(bundle.model, bundle.optimizer, total_steps=total, averaging=averaged)
    for batch in auto.batches(bundle.loader):
        auto.step(step(bundle, bundle.optimizer, batch))
        if auto.session.state.probes:
            break
    edge = min(first_edge(auto.session.state), 10.0)
    ramps = []
    for steps, octaves in LENGTHS:
        bundle, _, _ = build(name, seed)
        lrs, losses = np.geomspace(edge * 2.0**-octaves, edge * 2.0**BEYOND, steps), []
        for lr, batch in zip(lrs, endless(bundle.loader), strict=False):
            set_lr(bundle.optimizer, lr)
            losses.append(step(bundle, bundle.optimizer, batch).item())
            if not math.isfinite(losses[-1]):
                losses[-1] = None
                break
        ramps.append({"steps": steps, "octaves": octaves, "lrs": [lrs[0], lrs[-1]], "losses": losses})
    return {"task": name, "seed": seed, "total_steps": total, "edge": edge, "ramps": ramps}


def breaks(ramp: Row) -> float:
    """The LR before which training broke in a slow ramp, as the strategy finds it."""
    losses = [math.inf if loss is None else loss for loss in ramp["losses"]]
    lrs = np.geomspace(*ramp["lrs"], ramp["steps"])
    return float(lrs[course(losses, ramp["steps"]).last])


def lost_at(runs: list[Row], warmup: float = 0.15) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Task -> log2 of the peaks of whole runs, and the log of the loss over that at the best peak, in the mean."""
    found: Any = defaultdict(lambda: defaultdict(dict))
    for row in runs:
        if row["warmup"] == warmup:
            found[row["task"]][row["peak"]][row["seed"]] = row["test"]
    result = {}
    for task, peaks in found.items():
        seeds = {seed for losses in peaks.values() for seed in losses}
        logs = np.array(
            [[math.log(losses.get(seed) or math.inf) for seed in seeds] for _, losses in sorted(peaks.items())]
        )
        above = np.minimum(logs - logs.mean(1).min(), math.log(MOST)).mean(1)
        result[task] = np.log2(sorted(peaks)), above
    return result


def slowed(ramps: list[Row], runs: list[Row]) -> dict[tuple[int, int], dict[float, dict[str, float]]]:
    """Steps and octaves of a slow ramp -> octaves from its break to the peak -> task -> what is lost by that peak."""
    lost = lost_at(runs)
    found: Any = defaultdict(lambda: defaultdict(lambda: defaultdict(list)))
    for row in ramps:
        for ramp in row["ramps"]:
            for below in BELOW:
                at = np.interp(math.log2(breaks(ramp)) - below, *lost[row["task"]])
                found[ramp["steps"], ramp["octaves"]][below][row["task"]].append(float(at))
    return {
        length: {below: {task: float(np.mean(all_)) for task, all_ in tasks.items()} for below, tasks in belows.items()}
        for length, belows in found.items()
    }


def read(path: Path) -> list[Row]:
    """The rows of a file."""
    return [json.loads(line) for line in path.read_text().splitlines()]


def main(arguments: list[str]) -> None:
    """The command line."""
    if arguments[:1] in (["record"], ["search"], ["hold"], ["again"], ["warm"], ["product"], ["slow"]):
        import torch

        torch.set_num_threads(1)
    if arguments[:1] == ["record"] and len(arguments) > 2:
        for seed in map(int, arguments[3:] or ["100"]):
            row = record(arguments[2], seed)
            with Path(arguments[1]).open("a") as file:
                file.write(json.dumps(row) + "\n")
            print(f"{row['task']} seed {seed}: the rule loses {regret(row, unheld(row)):.1%}")
    elif arguments[:1] == ["score"]:
        for kind, tasks in score(read(Path(arguments[1]) if arguments[1:] else ROWS)).items():
            print(f"{kind}: {np.mean(list(tasks.values())):.2%} in the mean")
            for task, loss in tasks.items():
                print(f"  {task:26}{loss:7.1%}")
    elif arguments[:1] == ["search"] and len(arguments) > 3:
        with Path(arguments[1]).open("a") as file:
            for seed in map(int, arguments[3:]):
                file.write(json.dumps(search(arguments[2], seed)) + "\n")
    elif arguments[:1] == ["searched"]:
        lost = searched(*(read(Path(file)) for file in (*arguments[1:], *(SEARCHES, ROWS)[len(arguments) - 1 :])))
        print(f"{np.mean([np.mean(all_) for all_ in lost.values()]):.2%} in the mean")
        for task, all_ in sorted(lost.items()):
            spread = f"+-{np.std(all_):.1%}, worst of {len(all_)}: {max(all_):.1%}"
            print(f"  {task:26}{np.mean(all_):7.1%}{spread}")
    elif arguments[:1] == ["again"]:
        found = again(arguments[1:])
        for task, seed, before, now in found:
            print(f"{task} seed {seed}: {before:.5g}, now {now:.5g}")
        same = sum(math.isclose(before, now, rel_tol=1e-5) for _, _, before, now in found)
        print(f"{same} of {len(found)} are the same")
    elif arguments[:1] == ["hold"] and len(arguments) == 4:
        until, _, factor = arguments[2].partition("x")
        with Path(arguments[1]).open("a") as file:
            for row in hold(arguments[3], float(until), float(factor or 1)):
                file.write(json.dumps(row) + "\n")
    elif arguments[:1] == ["held"]:
        for kind, shapes in held(read(Path(arguments[1]) if arguments[1:] else HELD)).items():
            for shape, ratios in shapes.items():
                print(f"{kind}, held until {shape}: {np.exp(np.mean(np.log(list(ratios.values())))):.4f} in the mean")
                for task, ratio in ratios.items():
                    print(f"  {task:26}{ratio:7.3f}")
    elif arguments[:1] == ["warm"] and len(arguments) > 5:
        with Path(arguments[1]).open("a") as file:
            for seed in map(int, arguments[5:]):
                file.write(json.dumps(warm(arguments[4], seed, float(arguments[3]), float(arguments[2]))) + "\n")
    elif arguments[:1] == ["warmed"]:
        for (task, seed), shares in warmed(read(Path(arguments[1]) if arguments[1:] else WARMUPS)).items():
            for share, losses in shares.items():
                print(f"{task:26} seed {seed}, {share:4.0%}:", *(f"{p:.3g} {loss:.4g}," for p, loss in losses.items()))
    elif arguments[:1] == ["product"] and len(arguments) > 4:
        with Path(arguments[1]).open("a") as file:
            for seed in map(int, arguments[4:]):
                file.write(json.dumps(product(arguments[2], arguments[3], seed)) + "\n")
                file.flush()
    elif arguments[:1] == ["slow"] and len(arguments) > 3:
        with Path(arguments[1]).open("a") as file:
            for seed in map(int, arguments[3:]):
                file.write(json.dumps(slow(arguments[2], seed)) + "\n")
    elif arguments[:1] == ["slowed"]:
        files = (*arguments[1:], *(RAMPS, SLOW_RUNS)[len(arguments) - 1 :])
        for (steps, octaves), belows in slowed(*(read(Path(file)) for file in files)).items():
            lost = (f"{below:g}: {np.mean(list(tasks.values())):.2f}" for below, tasks in belows.items())
            print(f"{steps} steps over {octaves} octaves, log loss lost by octaves below the break:", ", ".join(lost))
    else:
        raise SystemExit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
