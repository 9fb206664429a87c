"""The stage curriculum (Section 4.4): tau doubles up to tau_max; validation loss once tau has reached it."""

from __future__ import annotations

from dataclasses import dataclass

from autolrs.core.settings import MIN_PROBE_STEPS, Settings
from autolrs.core.types import Metric


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage's shape. `n_probes` is 0 where the stretch is too short to probe: it goes on at the previous LR."""

    index: int
    steps: int  # [tau]
    probe_steps: int  # [tau']
    n_probes: int  # [k]
    metric: Metric
    eval_every: int  # 0 with metric "train"


def plan(settings: Settings, index: int, committed: int, *, validation: bool) -> Stage:
    """Shape of searched stage `index` (from 0) that begins after `committed` steps (warm-up included).

    `validation` says whether the user gave an `evaluate`; without it every stage uses the training loss. A last stage
    cut by `total_steps` has its probes cut with it; when that leaves fewer than 4 probe steps it is not searched.

    >>> [plan(Settings(max_stage_steps=5000), i, 0, validation=False).steps for i in range(4)]
    [1000, 2000, 4000, 5000]
    """
    tau = min(settings.stage_steps << min(index, 62), settings.max_stage_steps)
    steps = tau
    if settings.total_steps is not None:
        steps = min(tau, settings.warmup_steps + settings.searched_steps - committed)
    probe_steps = settings.probe_steps(steps)
    metric: Metric = "validation" if validation and tau == settings.max_stage_steps else "train"
    # A forecast needs at least 4 losses: short probes are evaluated more often.
    eval_every = min(settings.eval_every, probe_steps // MIN_PROBE_STEPS) if metric == "validation" else 0
    n_probes = settings.n_probes if probe_steps >= MIN_PROBE_STEPS else 0
    return Stage(index, steps, probe_steps, n_probes, metric, eval_every)
