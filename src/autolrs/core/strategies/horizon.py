"""Choose the LR once, on miniature copies of the whole run, then run it: warm-up, the peak held, and a linear decay.

Why, with measurements: docs/research-log.md. The loss after a stretch at a constant LR favours LRs that are too small;
the loss after a *complete* short schedule, decay included, does not. What is left is that a short run likes a somewhat
higher peak than a long one: the horizon correction.

1. One ramp, 1 % of the budget: the LR rises over the whole interval. Where the smoothed loss is lowest is the landmark.
2. Miniature runs, 2 % each, from the same snapshot on the same batches, at LRs a factor 2 apart: first two octaves
   below the landmark, or at the LR that is usual of such a network, where one is known; then downwards and upwards
   while that is promising, until the money is spent (horizon_search.py).
   One that diverges is stopped, and so is one (after the first ones) that is clearly losing.
3. The peak is the mean of their log LRs weighted by how well they did, lowered by the horizon correction: the less,
   the further down they brought the loss. It goes half-way to what is usual of so long a run. SGD has a slow ramp as
   well, or in a short run instead of them: the peak lies well below where it breaks. Where miniature runs learned too
   little to tell, it is the usual LR, or lies below the edge of divergence, which further ramps look for
   (horizon_choice.py).
4. Everything is put back, and the whole run is trained from step 0, with a warm-up that is the longer, the less they
   learned. With `replan_at`, miniature anneals part-way ask whether the LR may be higher (horizon_replan.py).

What all this may cost is in horizon_plan.py, what short runs do differently in horizon_rules.py, what the ramp showed
in horizon_ramp.py and the slow one in horizon_slow.py, what miniature runs came to in horizon_minis.py, what that says
in horizon_answers.py, the arithmetic of the third step in horizon_peak.py, the LR of the fourth in horizon_schedule.py.
"""

from __future__ import annotations

import math

import numpy as np

from autolrs.core.engine import State
from autolrs.core.interval import is_sweep, ramp, steps_at
from autolrs.core.strategies import horizon_replan as replan
from autolrs.core.strategies.horizon_answers import by_edge, ramps_asked
from autolrs.core.strategies.horizon_choice import choose, warmup_share
from autolrs.core.strategies.horizon_minis import tail
from autolrs.core.strategies.horizon_plan import (
    LEAST_MINIS,
    MAX_MINIS,
    Plan,
    affords,
    affords_another,
    look_interval,
    plan,
)
from autolrs.core.strategies.horizon_ramp import SLOW, further, landmark, search_interval
from autolrs.core.strategies.horizon_schedule import RETREAT, rest
from autolrs.core.strategies.horizon_search import first_offsets, limits, next_offset
from autolrs.core.strategies.horizon_slow import slow_lrs
from autolrs.core.types import Command, Commit, Forecast, Probe, Segment, Wait, cut, peak_lr

PIECES, PIECE_STEPS = 10, 50  # of the run in one go: at most so many, of at least so many steps
CHECKS, CHECK_STEPS = 50, 10  # whether training has relapsed: at most so often, after at least so many steps
MAX_FAILURES = 5  # in a run; beyond it the fault is not the LR's


class Horizon:
    """The default strategy when `total_steps` is known."""

    name = "horizon"

    def decide(self, state: State) -> Command:
        """Ramp, miniature runs, then the run itself in stretches, so that a killed one goes on from the last."""
        budget = plan(state.settings, validation=state.validation)
        if state.committed_steps:
            return _go_on(state, budget)
        asked = len(state.probes) + len(state.outstanding)
        if not asked and budget.ramp_steps:
            profile = ramp(budget.ramp_steps, search_interval(state.settings))
            return Probe(0, 0, profile, check_every=1)
        if state.probes and len(state.outstanding) < state.settings.parallel:
            probe = _slow(state, budget) or _next_mini(state, budget) or _next_ramp(state, budget)
            if probe is not None:
                return probe
        if state.outstanding:
            return Wait()
        peak, why = choose(state)
        if state.settings.replan_at and not budget.replans:
            why += f"; re-planning is left out, since it does not fit into max_cost {state.settings.max_cost}"
        return _stretch(state, budget, peak, why)

    def judge(self, state: State, probe: Probe, losses: list[float]) -> Forecast:
        """Validation loss at the end, or the mean training loss over the tail."""
        value = float(np.mean(losses)) if probe.metric == "validation" else tail(losses)
        if not all(map(math.isfinite, losses)):
            return Forecast(math.inf, math.nan, math.nan, math.nan, "diverged")
        return Forecast(value, 0.0, 0.0, value, "ok")

    def retained(self, state: State) -> frozenset[int]:
        """No probe's end state is needed: the run starts anew."""
        return frozenset()


def _slow(state: State, budget: Plan) -> Probe | None:
    """The slow ramp, next after the first one, where there is one."""
    if not budget.slow_steps or len(state.probes) + len(state.outstanding) > 1:
        return None
    return Probe(0, SLOW, steps_at(slow_lrs(state)), check_every=1)


def _next_mini(state: State, budget: Plan) -> Probe | None:
    """The next miniature run; None where it tells nothing more, or there is no money for it."""
    asked = len(state.probes) + len(state.outstanding) - (budget.slow_steps > 0)
    if asked > (MAX_MINIS if budget.minis else 0) or ramps_asked(state):
        return None
    if not affords_another(state, budget, LEAST_MINIS if asked == 1 else 1):
        return None
    offset = next_offset(state)
    if offset is None or (offset not in first_offsets(state) and not _affords_beside_ramps(state, budget)):
        return None
    return _mini(state, budget, offset)


def _affords_beside_ramps(state: State, budget: Plan) -> bool:
    """Whether a miniature run leaves money for further ramps, where these know more by all that is known so far."""
    return not by_edge(state) or affords_another(state, budget, beside=sum(lrs.size for lrs in further(state)))


def _next_ramp(state: State, budget: Plan) -> Probe | None:
    """A further ramp, where the edge of divergence alone tells the peak and all miniature runs are answered."""
    asked = ramps_asked(state)
    if not by_edge(state) or not all(is_sweep(probe.profile) for probe in state.outstanding):
        return None
    for lrs in further(state)[asked : asked + 1]:
        if affords(state, budget, lrs.size):
            return Probe(0, len(state.probes) + len(state.outstanding), steps_at(lrs), check_every=1)
    return None


def _mini(state: State, budget: Plan, octave: int) -> Probe:
    """A complete schedule in miniature; its warm-up takes a larger share, since below some ten steps there is none."""
    peak = landmark(state) * 2.0**octave
    warm = max(1, round(0.1 * budget.mini_steps))
    bottom = peak if state.settings.decay_to == 1 else 0.0
    profile = (Segment(warm, peak / warm, peak), Segment(budget.mini_steps - warm, peak, bottom))
    check = max(1, budget.mini_steps // 8)
    metric_every = budget.mini_steps if budget.validated else 0
    return Probe(
        0,
        len(state.probes) + len(state.outstanding),
        profile,
        "validation" if budget.validated else "train",
        metric_every,
        check,
        limits=limits(state, octave, budget.mini_steps, check),
    )


def _go_on(state: State, budget: Plan) -> Command:
    """The run after its first stretch; where it is to be planned anew, the probes for that come first."""
    peak, octaves, why = max(peak_lr(state.segments), state.aim), 0.0, ""
    decays = state.segments[-1].lr_end > state.settings.decay_to * peak  # or else it is about to warm up again
    if state.committed_steps in budget.replans and decays and not state.failures:
        probe = replan.next_probe(state, budget, search_interval(state.settings)[1])
        if probe is not None:
            return probe
        if state.outstanding:
            return Wait()
        octaves, why = replan.conclude(state, budget)
    return _stretch(state, budget, peak, why, octaves)


def _stretch(state: State, budget: Plan, peak: float, why: str, octaves: float = 0.0) -> Commit:
    """The next piece of the run. What breaks is undone to its beginning; from there a killed run goes on, too."""
    if state.failures:
        why = f"training broke: this stretch is tried again at {RETREAT**state.failures:.3g} of the LR"
    total = state.settings.total_steps
    assert total is not None
    pieces = min(max(total // PIECE_STEPS, 1), PIECES)
    done = state.committed_steps
    ends = {*(round(total * (i + 1) / pieces) for i in range(pieces)), *budget.replans}
    end = min(e for e in ends if e > done)
    profile = rest(state, peak, None if done else warmup_share(state), end - done, octaves)
    looks = 0
    if state.settings.keep_best == "auto" and state.validation and not state.look_every and not done:
        looks = look_interval(state, budget)
    guarded = state.all_failures < MAX_FAILURES
    check = max(total // CHECKS, CHECK_STEPS) if guarded and not state.hard else 0
    return Commit(state.stage, cut(profile, 0, end - done), None, why, guarded, looks, check, peak_lr(profile))
