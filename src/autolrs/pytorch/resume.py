"""Going on with a run that was killed, from its folder; on any number of ranks."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from autolrs.core.engine import State, Strategy, fold
from autolrs.core.types import Resumed
from autolrs.pytorch import averaging, checkpoint, comm, shards
from autolrs.pytorch.auto import AutoLRS
from autolrs.run.comm import Comm, first
from autolrs.run.journal import Journal, JournalError, discard_empty


def resume(
    run_dir: str | Path,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    *,
    evaluate: Callable[[], Any] | None = None,
    track: dict[str, Any] | None = None,
    strategy: str | Strategy | None = None,
    checkpoint_every: int = 1,
    trackers: Sequence[Any] = (),
    progress: bool = False,
    missing_ok: bool = False,
    **settings: Any,
) -> AutoLRS:
    """Continue the run in `run_dir` from its last checkpoint, on a model and optimizer built as they were at first.

    Steps since that checkpoint are taken again and give the same schedule. A run that has no checkpoint yet starts anew
    with its recorded settings. `settings`, if given, must equal the recorded ones; a difference is refused by name, but
    for a larger `total_steps`, which extends the run (see `AutoLRS.extend`).

    With `missing_ok` a folder that holds no run gets a new one with `settings`: a script that calls this works on its
    first start and on every restart.
    """
    ranks = comm.current()
    mine: list[Journal] = []
    found = first(ranks, lambda: _recorded(Path(run_dir), missing_ok, mine), "reading the journal")
    if found is None:
        auto = AutoLRS(
            model,
            optimizer,
            strategy="horizon" if strategy is None else strategy,
            evaluate=evaluate,
            run_dir=run_dir,
            checkpoint_every=checkpoint_every,
            trackers=trackers,
            progress=progress,
            **settings,
        )
        if track:
            auto.track(**track)
        return auto
    began, state = map(State.from_json, found)
    if isinstance(strategy, str):
        settings["strategy"] = strategy
    longer = (settings.get("total_steps") or 0) > (state.settings.total_steps or math.inf)
    budget = settings.pop("total_steps") if longer else None
    checkpoint.check_same_run(str(run_dir), state, settings, evaluate is not None)
    auto = AutoLRS(
        model,
        optimizer,
        strategy=strategy if strategy is not None else state.settings.strategy,
        evaluate=evaluate,
        run_dir=run_dir,
        checkpoint_every=checkpoint_every,
        trackers=trackers,
        progress=progress,
        _resumed_from=state.settings,
    )
    auto._track(track or {})
    auto.session.journal = mine[0] if mine else None
    _go_on(auto, ranks, began)
    if budget is not None:
        auto.extend(budget)
    return auto


def _recorded(run_dir: Path, missing_ok: bool, mine: list[Journal]) -> list[dict[str, Any]] | None:
    """The states at the journal's beginning and at its end, opened for going on; None where a new run may be begun."""
    if missing_ok and discard_empty(run_dir):
        return None
    journal, events = Journal.reopen(run_dir)
    if not events:
        raise JournalError(f"{run_dir} holds a journal without events: nothing to resume")
    mine.append(journal)
    return [fold(events[:1]).to_json(), fold(events).to_json()]


def _go_on(auto: AutoLRS, ranks: Comm, began: State) -> None:
    assert auto.run_dir is not None
    saved, remark = checkpoint.load(auto.run_dir, ranks, auto.host)
    if saved is None:
        if auto.session.journal is not None:
            auto.session.journal.append(Resumed(1))
        auto.session.state = began  # what was found out since then is found out again
        auto._watch_cost()
        auto.session.go_on()
        auto._watch_first_step()
        return
    before, auto._point = saved.get("ranks", 1), saved.get("id", "")
    if before != ranks.size:
        left = saved.get("shards") and auto.settings.keep_best == "auto" and _forget_best(saved)
        _check_spread(saved, auto, f"this run was saved by {before} ranks and there are {ranks.size} now")
    auto._load(saved, own_journal=True)
    if before != ranks.size:
        auto.session.rollback()  # a probe under way begins again: its data cannot be had again
        auto.session.note(
            f"going on with {ranks.size} ranks instead of {before}: what is not sharded is rank 0's, random "
            "numbers begin as the script seeded them, and the data at the start of the epoch"
            + ("; the best state so far lay in shards and is left behind" if left else "")
        )
    if remark:
        auto.session.note(remark)
        if ranks.rank == 0:
            warnings.warn(remark, RuntimeWarning, stacklevel=3)


def _forget_best(saved: dict[str, Any]) -> bool:
    """Let a best state in shards go, if there is one that nobody asked for: looks from here on may find another."""
    return saved["snapshots"].pop(saved["session"].pop("best", None), None) is not None


def _check_spread(saved: dict[str, Any], auto: AutoLRS, what: str) -> None:
    """Raise where rank 0's state, or the shards, cannot serve another number of ranks."""
    live = saved["live"]
    if saved.get("shards") and saved["session"].get("best") is not None:
        raise ValueError(f"{what}: `keep_best` holds a state in shards, go on with as many")
    if saved.get("shards") and saved["snapshots"]:
        raise ValueError(
            f"{what}: a sharded one that was saved between two commits must go on with as many; without "
            f"{checkpoint.NAME} it goes on from the point before"
        )
    if live["optimizer"]["kind"] == "ZeroRedundancyOptimizer":
        raise ValueError(f"{what}: each rank of a ZeroRedundancyOptimizer keeps another part, go on with as many")
    for name, tree in live["tracked"].items():
        if name != averaging.NAME and shards.differs(tree, auto.host.capture()["tracked"].get(name)):
            raise ValueError(f"{what}: the tracked {name!r} is sharded, go on with as many")
