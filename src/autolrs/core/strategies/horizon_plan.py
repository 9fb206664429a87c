"""What strategy `horizon` may spend: the ramp, the miniature runs and re-planning, fitted into `max_cost`."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import product

from autolrs.core.engine import State
from autolrs.core.overfitting import MIN_LOOKS
from autolrs.core.settings import LOOKS, REPLAN_RUNS, Settings
from autolrs.core.types import profile_steps

# Fewer say nothing; more would not fit whole into the journal, and decisions rest on what is there.
RAMP_STEPS = (20, 128)
MIN_MINI_STEPS = 20
MAX_MINIS = 7
LEAST_MINIS = 2  # of one alone nobody can say whether it did well
ENOUGH_MINIS = 3  # a fourth is worth less than knowing whether the run overfits
SHORTEST_WARMUP = 0.05  # of a run whose miniatures came far; less costs up to 1.4 %
SLOW_STEPS = (16, 30, 60)  # of a slow ramp: fewer say nothing, enough beside looks, more say little more
SLOW_BESIDE = 40  # of one beside miniature runs, at least
DEAR = 0.25  # of what it is spent for: an `evaluate` that costs more waits, since training losses judge as well


@dataclass(frozen=True, slots=True)
class Plan:
    """How the search budget is spent.

    `minis` is the number of miniature runs that are sure to fit, `replans` the committed steps at which the run is
    planned anew, `looks` the number of looks at the validation loss that are kept for `keep_best="auto"`. Miniature
    runs are judged by their validation loss if `validated`, or else by the training loss. SGD has a slow ramp of
    `slow_steps` beside them or, in a short run, instead of them.
    """

    ramp_steps: int
    mini_steps: int
    minis: int
    replans: tuple[int, ...] = ()
    looks: int = 0
    validated: bool = False
    slow_steps: int = 0


def plan(settings: Settings, *, validation: bool) -> Plan:
    """Fit the search into `max_cost`: all, fewer LRs, no judge, no looks, no re-planning, the ramp alone, nothing.

    >>> plan(Settings(total_steps=10_000, strategy="horizon"), validation=False)
    Plan(ramp_steps=100, mini_steps=200, minis=7, replans=(), looks=0, validated=False, slow_steps=0)
    >>> plan(Settings(total_steps=10_000, strategy="horizon", replan_at=(0.25,)), validation=False)
    Plan(ramp_steps=100, mini_steps=200, minis=4, replans=(2500,), looks=0, validated=False, slow_steps=0)
    """
    total, budget = settings.total_steps, _money(settings, validation)
    sweep, each = ramp_steps(settings), mini_steps(settings)
    assert total is not None
    if budget < sweep:
        return Plan(0, 0, 0)
    ends = {max(round(share * total), warmup_steps(settings, total)) for share in settings.replan_at}
    replans = tuple(sorted(end for end in ends if end < total))
    looks = MIN_LOOKS if settings.keep_best == "auto" and validation else 0
    by_ramps = _by_ramps(settings, budget, replans, looks, calls=int(validation))
    if goes_by_ramps(settings):
        return by_ramps
    # After 20 steps training losses judge better: with BatchNorm a validation loss is that of its first statistics.
    affordable = validation and settings.evaluate_steps <= DEAR * each and not is_short(settings)
    # The judge is given up first, then looks, where three miniature runs do not fit beside them; re-planning last.
    means = (
        (looks, affordable, ENOUGH_MINIS),
        (looks, False, ENOUGH_MINIS),
        (0, affordable, ENOUGH_MINIS),
        (0, False, LEAST_MINIS),
    )
    slow = _slow_steps_beside(settings)
    for wanted, (kept, judged, least) in product((replans, ()), means):
        left = budget - sweep - slow - kept * settings.evaluate_steps
        minis = int(left / _price(settings, each, judged) + 1e-9) - REPLAN_RUNS * len(wanted)
        if minis >= least:
            return Plan(sweep, each, min(minis, MAX_MINIS), wanted, kept, judged, slow)
    return by_ramps if settings.proportional_steps else Plan(sweep, each, 0)


def _by_ramps(settings: Settings, budget: float, replans: tuple[int, ...], looks: int, calls: int) -> Plan:
    """A slow ramp of as many steps as there is money for, and no miniature runs.

    `calls` of `evaluate` come before it; what such a call costs beyond its share breaks the ceiling.
    """
    sweep, each, each_look = ramp_steps(settings), mini_steps(settings), settings.evaluate_steps
    least, enough, most = SLOW_STEPS
    for wanted, (kept, needed) in product((replans, ()), ((looks, enough), (0, least))):
        left = budget - sweep - kept * each_look - calls * min(each_look, weighing_share(settings))
        steps = int(left - REPLAN_RUNS * len(wanted) * _price(settings, each, False) + 1e-9)
        if steps >= needed:
            return Plan(sweep, each, 0, wanted, kept, slow_steps=min(steps, most))
    return Plan(sweep, each, 0)


def _slow_steps_beside(settings: Settings) -> int:
    """Of the slow ramp beside miniature runs. Networks with norms turn any LR into what they bear, and have none."""
    if not settings.proportional_steps or settings.normalised:
        return 0
    return min(max(mini_steps(settings), SLOW_BESIDE), SLOW_STEPS[2])


def ramp_steps(settings: Settings) -> int:
    """The length of the ramp, where there is one."""
    assert settings.total_steps is not None
    return min(max(round(0.01 * settings.total_steps), RAMP_STEPS[0]), RAMP_STEPS[1])


def mini_steps(settings: Settings) -> int:
    """The length of a miniature run."""
    assert settings.total_steps is not None
    return max(round(settings.mini_fraction * settings.total_steps), MIN_MINI_STEPS)


def is_short(settings: Settings) -> bool:
    """Whether the run is so short that its miniature runs have the least steps that say anything."""
    return mini_steps(settings) <= MIN_MINI_STEPS


def goes_by_ramps(settings: Settings) -> bool:
    """Whether a slow ramp tells the peak: of a short run of SGD, whose miniature runs are too few and too short."""
    return settings.proportional_steps and is_short(settings)


def affords_another(state: State, budget: Plan, runs: int = 1, beside: int = 0) -> bool:
    """Whether one more miniature run (or `runs`) fits, and `beside` it so many steps of ramps."""
    return affords(state, budget, runs * _price(state.settings, budget.mini_steps, budget.validated) + beside)


def affords(state: State, budget: Plan, steps: float) -> bool:
    """Whether probes worth so many steps fit, by the steps taken: what stopped runs have saved goes to others.

    Probes under way count in full, so that parallel ones are as many as one by one. Re-planning that is still to come
    keeps its share, and so do looks.
    """
    settings = state.settings
    under_way = sum(_price(settings, profile_steps(p.profile), p.metric == "validation") for p in state.outstanding)
    left = _left(state, budget) - budget.looks * settings.evaluate_steps
    return left >= under_way + steps - 1e-9 * steps


def look_interval(state: State, budget: Plan) -> int:
    """Committed steps between two looks at the validation loss, paid by what the search has left; 0 if that is little.

    Asked when the search is over.
    """
    settings = state.settings
    assert settings.total_steps is not None
    each = settings.evaluate_steps
    looks = min(LOOKS, int(_left(state, budget) / each + 1e-9)) if each else LOOKS
    return math.ceil(settings.total_steps / looks) if looks >= MIN_LOOKS else 0


def warmup_steps(settings: Settings, total: int, share: float | None = None) -> int:
    """Steps of the warm-up of a run of `total` steps; `share` is what "auto" came to, if that is known."""
    own = SHORTEST_WARMUP if settings.warmup_fraction == "auto" else settings.warmup_fraction
    return max(1, settings.warmup_steps or round((own if share is None else share) * total))


def _left(state: State, budget: Plan) -> float:
    """Steps' worth that is not spent, nor kept for re-planning that is still to come."""
    settings = state.settings
    looked = state.committed_steps // state.looking if state.looking else 0  # those have money of their own
    spent = state.raw_steps - state.committed_steps + (state.evaluations - looked) * settings.evaluate_steps
    if state.weighed:  # what is more than its share breaks the ceiling, rather than taking the whole search with it
        spent -= max(0.0, settings.evaluate_steps - weighing_share(settings))
    replans = REPLAN_RUNS * sum(end > state.committed_steps for end in budget.replans)
    kept = replans * _price(settings, budget.mini_steps, budget.validated)
    return _money(settings, state.validation) - spent - kept


def _money(settings: Settings, validation: bool) -> float:
    """Steps' worth that all search may cost."""
    at_the_end = 2 if validation and compares(settings) else 0
    return _allowance(settings) - (at_the_end + settings.looks) * settings.evaluate_steps


def weighing_share(settings: Settings) -> float:
    """Steps' worth that the one `evaluate` may take which finds out what it costs; more is not known in time."""
    return DEAR * _allowance(settings)


def _allowance(settings: Settings) -> float:
    """Steps' worth that `max_cost` leaves beside the run."""
    assert settings.total_steps is not None
    return (settings.max_cost - 1.0) * settings.total_steps


def compares(settings: Settings) -> bool:
    """Whether averaged weights are held against the others at the end: unless two calls of `evaluate` are dear.

    In a short run they are where they would cost one of the first three miniature runs, or a slow ramp too many of its
    steps. Only this strategy has a ceiling for them to break.
    """
    if not settings.averaging or settings.strategy != "horizon":
        return settings.averaging
    each = settings.evaluate_steps
    least, enough = SLOW_STEPS[:2] if goes_by_ramps(settings) else (LEAST_MINIS, ENOUGH_MINIS)
    without, beside = (_room_beside(settings, calls) for calls in (1, 3))  # one of them weighs
    dear = is_short(settings) and without >= least and beside < min(without, enough)
    return not dear and 2 * each <= weighing_share(settings)


def _room_beside(settings: Settings, calls: int) -> int:
    """Miniature runs, judged by their training loss, or steps of a slow ramp that fit beside so many `evaluate`."""
    left = _allowance(settings) - calls * settings.evaluate_steps - ramp_steps(settings)
    return int(left / (1 if goes_by_ramps(settings) else mini_steps(settings)) + 1e-9)


def _price(settings: Settings, steps: int, validated: bool) -> float:
    """Steps' worth of a miniature run."""
    return steps + (settings.evaluate_steps if validated else 0.0)
