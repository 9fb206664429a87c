"""Re-planning part-way through a `horizon` run, at the shares of it that `replan_at` names: may the LR be higher?

From the state at that moment miniature anneals are run: in a tenth of their steps the LR moves to 1 and 2 times the
present one (and to 4 times, unless 2 was worse), then in a line to 0. They are judged like other miniature runs. The
mean of their octaves, weighted by how well they did, is lowered by the horizon correction for what is left of the run.
What remains above 0 raises the LR. Nothing lowers it: over a short horizon a low LR nearly always wins.
"""

from __future__ import annotations

import math

import numpy as np

from autolrs.core.engine import State
from autolrs.core.settings import REPLAN_RUNS
from autolrs.core.strategies.horizon_plan import Plan, affords_another
from autolrs.core.types import Probe, Probed, Segment

OCTAVES = tuple(range(REPLAN_RUNS))  # by the probes' index
TEMPERATURE = 0.25  # of the weights, in units of what the worst is behind: progress has no start to count from here


def next_probe(state: State, budget: Plan, highest: float) -> Probe | None:
    """The next miniature anneal; None when there is none to be begun now."""
    asked = len(state.probes) + len(state.outstanding)
    if asked >= len(OCTAVES) or len(state.outstanding) >= state.settings.parallel or not affords_another(state, budget):
        return None
    lr = state.segments[-1].lr_end
    top = lr * 2.0 ** OCTAVES[asked]
    if top > highest * (1 + 1e-9) or (asked == 2 and not _still_better(state)):
        return None
    warm, check = max(1, round(0.1 * budget.mini_steps)), max(1, budget.mini_steps // 8)
    profile = (Segment(warm, lr, top), Segment(budget.mini_steps - warm, top, 0.0))
    metric_every = budget.mini_steps if budget.validated else 0
    return Probe(state.stage, asked, profile, "validation" if budget.validated else "train", metric_every, check)


def conclude(state: State, budget: Plan) -> tuple[float, str]:
    """By how many octaves the LR rises, and why, in words."""
    settings, values = state.settings, _values(state)
    assert settings.total_steps is not None
    lr, left = state.segments[-1].lr_end, settings.total_steps - state.committed_steps
    where = f"re-planned at {state.committed_steps / settings.total_steps:.0%}: "
    if not values:
        return 0.0, where + f"no miniature anneal is affordable within max_cost {settings.max_cost}, the LR stays"
    tried = ", ".join(
        f"{value:.4g} at x {2**octave}" if math.isfinite(value) else f"x {2**octave} was stopped"
        for octave, value in values.items()
    )
    finite = {octave: value for octave, value in values.items() if math.isfinite(value)}
    if not finite:
        return 0.0, where + f"all miniature anneals diverged, the LR stays at {lr:.4g}"
    short = np.array(list(finite.values())) - min(finite.values())
    weights = np.exp(-short / (TEMPERATURE * (short.max() or 1.0)))
    centre = float(weights @ np.array(list(finite)) / weights.sum())
    whole = math.log(settings.total_steps / budget.mini_steps)
    shift = settings.horizon_shift * math.log(max(left / budget.mini_steps, 1.0)) / whole if whole > 0 else 0.0
    octaves = min(max(centre - shift, 0.0), float(max(finite)))
    does = f"rises to {lr * 2.0**octaves:.4g}" if octaves else "stays"
    return octaves, (
        f"{where}miniature anneals from LR {lr:.4g} ended at {tried}; weighted centre x {2.0**centre:.2f}, "
        f"and x {2.0**-shift:.2f} for the horizon that is left: the LR {does}"
    )


def _still_better(state: State) -> bool:
    """Whether both of the first two are known, and the higher LR was not the worse one."""
    values = _values(state)
    return len(values) == 2 and values[1] <= values[0] < math.inf


def _values(state: State) -> dict[int, float]:
    """Octave -> what its miniature anneal came to; infinite if it was stopped. In the order of asking."""
    answers = sorted(state.probes, key=lambda probe: probe.index)
    return {OCTAVES[p.index]: p.forecast.value if isinstance(p, Probed) else math.inf for p in answers}
