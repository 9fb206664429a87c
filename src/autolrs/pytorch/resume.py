"""Going on with a run that was killed, from its folder."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from autolrs.core.engine import Strategy, fold
from autolrs.core.types import Resumed
from autolrs.pytorch import checkpoint
from autolrs.pytorch.auto import AutoLRS
from autolrs.run.journal import Journal, JournalError


def resume(
    run_dir: str | Path,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    *,
    evaluate: Callable[[], Any] | None = None,
    track: dict[str, Any] | None = None,
    strategy: Strategy | None = None,
    checkpoint_every: int = 1,
    trackers: Sequence[Any] = (),
    progress: bool = False,
    **settings: Any,
) -> AutoLRS:
    """Continue the run in `run_dir` from its last checkpoint, on a model and optimizer built as they were at first.

    Steps since that checkpoint are taken again and give the same schedule. A run that has no checkpoint yet starts anew
    with its recorded settings. `settings`, if given, must equal the recorded ones; a difference is refused by name, but
    for a larger `total_steps`, which extends the run (see `AutoLRS.extend`).
    """
    journal, events = Journal.reopen(run_dir)
    if not events:
        raise JournalError(f"{run_dir} holds a journal without events: nothing to resume")
    state = fold(events)
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
    auto.session.journal = journal
    saved = checkpoint.load(run_dir)
    if saved is not None:
        auto._load(saved, own_journal=True)
    else:
        journal.append(Resumed(1))
        auto.session.go_on()
        auto._watch_first_step()
    if budget is not None:
        auto.extend(budget)
    return auto
