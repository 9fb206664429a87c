"""Choose the LR once, on miniature copies of the whole run, then run it: warm-up, the peak held, and a linear decay.

Why, with measurements: docs/research-log.md. The loss after a stretch at a constant LR favours LRs that are too small;
the loss after a *complete* short schedule, decay included, does not. What is left is that a short run likes a somewhat
higher peak than a long one: the horizon correction.

1. One ramp, 1 % of the budget: the LR rises over the whole interval. Where the smoothed loss is lowest is the landmark.
2. Miniature runs, 2 % each, from the same snapshot on the same batches, at LRs a factor 2 apart: first two octaves
   below the landmark, then downwards and upwards while that is promising, until the money is spent.
   One that diverges is stopped, and so is one (after the first ones) that is clearly losing.
3. The peak is the mean of their log LRs weighted by how well they did, lowered by the horizon correction: the less,
   the further down they brought the loss. In a short run it goes half-way to the usual LR, where one is known. Where
   the loss fell to a sixth or less, they know little but what was learned at once: the usual LR is tried, and taken if
   it did well. SGD has a slow ramp as well, or in a short run instead of them: the peak lies well below
   where it breaks. Where miniature runs learned too little to tell, it lies below the edge of divergence, which further
   ramps look for.
4. Everything is put back, and the whole run is trained from step 0, with a warm-up that is the longer, the less they
   learned. With `replan_at`, miniature anneals part-way ask whether the LR may be higher (horizon_replan.py).

What all this may cost is in horizon_plan.py, what short runs do differently in horizon_rules.py, what the ramp showed
in horizon_ramp.py and the slow one in horizon_slow.py, what miniature runs came to in horizon_minis.py, the arithmetic
of the third step in horizon_peak.py, the LR of the fourth in horizon_schedule.py.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from autolrs.core.engine import State
from autolrs.core.interval import is_sweep, ramp, steps_at
from autolrs.core.settings import Settings
from autolrs.core.strategies import horizon_replan as replan
from autolrs.core.strategies.horizon_minis import (
    differ,
    harmful_from,
    learned,
    lowest,
    minis,
    noise,
    outcomes,
    same_scale,
    start,
    tail,
)
from autolrs.core.strategies.horizon_peak import (
    WELL,
    after_deep_fall,
    centre,
    correction,
    descent,
    fall,
    fell_deep,
    left,
    shortfalls,
)
from autolrs.core.strategies.horizon_plan import (
    LEAST_MINIS,
    MAX_MINIS,
    SHORTEST_WARMUP,
    Plan,
    affords,
    affords_another,
    is_short,
    look_interval,
    plan,
)
from autolrs.core.strategies.horizon_ramp import SLOW, edge, further, further_ramps, landmark, search_interval
from autolrs.core.strategies.horizon_rules import LONGEST_WARMUP, START, off_by, rules, warmup_by
from autolrs.core.strategies.horizon_schedule import RETREAT, rest
from autolrs.core.strategies.horizon_slow import WARMUP, below_slow_edge, beside_slow_edge, slow_lrs, slow_ramp
from autolrs.core.types import (
    Command,
    Commit,
    Forecast,
    Probe,
    Probed,
    Segment,
    Wait,
    cut,
    peak_lr,
)

RAMP_ONLY = -2.75  # octaves from the landmark where nothing else is known: best in the mean for 250 to 400 steps
SURELY = 10.0  # standard errors by which SGD came below its first losses; 6 at most where it unlearned mistakes alone
PROMISING = 0.045  # of the progress: an edge this close to the best is extended
LATEST_STOP = 7 / 8  # of a miniature run: later than that there is nothing to save
PIECES, PIECE_STEPS = 10, 50  # of the run in one go: at most so many, of at least so many steps
CHECKS, CHECK_STEPS = 50, 10  # whether training has relapsed: at most so often, after at least so many steps
MAX_FAILURES = 5  # in a run; beyond it the fault is not the LR's
BELOW_EDGE = -4.5  # octaves, where miniature runs tell nothing: best in the mean of development tasks at 600 steps
BELOW_EDGE_SLOWLY = -3.5  # the same after the longest warm-up
BELOW_EDGE_TRAINED = -6.0  # the same of a network that was trained before, but for SGD's: what it knows breaks sooner


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
    if asked > (MAX_MINIS if budget.minis else 0) or _ramps(state):
        return None
    if not affords_another(state, budget, LEAST_MINIS if asked == 1 else 1):
        return None
    offset = next_offset(state)
    if offset is None or (offset not in rules(state.settings).first and not _affords_beside_ramps(state, budget)):
        return None
    return _mini(state, budget, offset)


def _affords_beside_ramps(state: State, budget: Plan) -> bool:
    """Whether a miniature run leaves money for further ramps, where these know more by all that is known so far."""
    return not by_edge(state) or affords_another(state, budget, beside=sum(lrs.size for lrs in further(state)))


def _next_ramp(state: State, budget: Plan) -> Probe | None:
    """A further ramp, where the edge of divergence alone tells the peak and all miniature runs are answered."""
    asked = _ramps(state)
    if not by_edge(state) or not all(is_sweep(probe.profile) for probe in state.outstanding):
        return None
    for lrs in further(state)[asked : asked + 1]:
        if affords(state, budget, lrs.size):
            return Probe(0, len(state.probes) + len(state.outstanding), steps_at(lrs), check_every=1)
    return None


def _ramps(state: State) -> int:
    """Further ramps that were asked for."""
    under_way = sum(is_sweep(probe.profile) for probe in state.outstanding if probe.index != SLOW)
    return len(further_ramps(state)) + under_way


def responses(state: State) -> dict[int, float]:
    """Octaves from the landmark -> by which share of its progress each run fell short of the best; inf if stopped."""
    mark = landmark(state)
    # In the order of asking: sums over them must not depend on which parallel run was answered first.
    answers = sorted(outcomes(state), key=lambda answer: answer[0].index)
    return shortfalls({_octave(probe.lr, mark): value for probe, value in answers}, start(state))


def limits(state: State, octave: int, steps: int, check: int) -> tuple[float, ...]:
    """At each check of a miniature run, the mean loss above which it is given up.

    It is clearly losing once it lies behind the best so far by a larger share of that one's progress than the share of
    steps it has left: a high LR looks worse in the middle and catches up in the decay, by less than that in all cases
    measured. What batches differ by shows nothing. The first ones have no limits, because they may run at once: what is
    stopped would depend on their order.
    """
    finished = [(value, probe.index, probe) for probe, value in outcomes(state) if isinstance(probe, Probed)]
    if octave in rules(state.settings).first or not finished:
        return ()
    reached, _, best = min(finished)
    progress = start(state) - reached
    if not progress > 0:
        return ()  # there is nothing to be behind of
    shares = (check * (i + 1) / steps for i in range(len(best.checks)))
    pairs = zip(best.checks, shares, strict=True)
    chance = 3 * noise(state) / math.sqrt(check)
    return tuple(mean + max((1 - share) * progress, chance) for mean, share in pairs if share <= LATEST_STOP)


def next_offset(state: State) -> int | None:
    """The next LR to try, in octaves from the landmark; None when both edges are clearly worse than the best run, and
    its neighbours known.

    The first ones are tried whatever they show, so they may run at once. Where to go from there rests on all answers:
    while one is missing it is None too. So the LRs tried, and the choice, are those of a search one by one.
    """
    tried = responses(state)
    runs = [probe for probe in state.outstanding if not is_sweep(probe.profile)]
    under_way = {_octave(peak_lr(probe.profile), landmark(state)) for probe in runs}
    for octave in rules(state.settings).first:
        if octave not in tried and octave not in under_way and _inside(state, octave):
            return octave
    if state.outstanding:
        return None
    if not tried:  # an interval of the user's own may begin above the first ones
        return next((octave for octave in range(START + 1, 1) if _inside(state, octave)), None)
    low, high = min(tried), max(tried)
    if all(math.isinf(value) for value in tried.values()):
        return low - 2 if _inside(state, low - 2) else None
    # Downwards first: where all LRs do alike, a whole run wants one from the lower end of them; after a deep fall the
    # usual one, or from the upper. Upwards by two then, and where the highest is far ahead, and back into the gap if
    # that was too far.
    best, deep = _best(tried), _deep(state)
    usual = _usual_octave(state) if deep else None
    if usual is not None and tried.get(usual, math.inf) < WELL:
        return None
    far = (deep or (best == high and _ahead(tried, 2))) and _inside(state, high + 2)
    down = [low - 1] if tried[low] < PROMISING else []
    up = [high + 2 if far else high + 1] if tried[high] < (WELL if deep else PROMISING) else []
    ways = up + down if deep else down + up
    ways = [usual, *ways] if usual is not None and usual not in tried else ways
    ways += [octave for octave in (best + 1, best - 1) if low < octave < high and octave not in tried]
    return next((octave for octave in ways if _inside(state, octave)), None)


def _usual_octave(state: State) -> int | None:
    """Where the usual LR lies, if there is one."""
    usual = state.settings.usual_lr
    return None if usual is None else _octave(usual, landmark(state))


def _deep(state: State) -> bool:
    """Whether miniature runs of a new network fell deep. One that was trained before falls as deep by its new head."""
    return not state.settings.trained_before and fell_deep(start(state), lowest(state))


def horizon_octaves(state: State) -> float:
    """By how many octaves the peak is lowered for the longer horizon; not at all where the interval is too low."""
    if interval_too_low(state):
        return 0.0
    begin, best = start(state), lowest(state)
    return correction(state.settings, begin, best) + off_by(rules(state.settings), fall(begin, best))


def interval_too_low(state: State) -> bool:
    """Whether the best LR seems to lie above the interval: the highest that fits was the best one, by far."""
    tried = responses(state)
    return _ahead(tried) and not _inside(state, _best(tried) + 1)


def _ahead(tried: Mapping[int, float], steepness: int = 1) -> bool:
    """Whether the LR next below the best one fell short by more than an edge that is extended, for each octave between
    them; or that to the power of `steepness`: across a gap only a steep slope says that the bottom is not inside."""
    best = _best(tried) if tried else 0
    below = max((octave for octave in tried if octave < best), default=None)
    return below is not None and tried[below] >= PROMISING * (best - below) ** steepness


def _best(tried: Mapping[int, float]) -> int:
    return min(tried, key=lambda octave: tried[octave])


def answered(state: State) -> bool:
    """Whether miniature runs tell where the peak is: some can be trusted, and they learned something."""
    trusted, kind = any(map(math.isfinite, responses(state).values())), rules(state.settings)
    surely = kind.ranked and (differ(state) or learned(state, SURELY))
    return trusted and learned(state) and (surely or _left_at_most(state, kind.learned))


def _left_at_most(state: State, share: float) -> bool:
    """Whether the best miniature run left no more than this share of the loss, as far as that can be told."""
    found = left(start(state), lowest(state))
    return found is None or found <= share


def warmup_share(state: State) -> float:
    """Which share of the run the warm-up takes: the more, the less miniature runs brought the loss down.

    They have seen the beginning alone then, and a peak by what they say may lie beyond a cliff; after a longer warm-up
    there is none, or it lies higher. Longest where they gave no answer; never beyond where the run is planned anew.
    """
    settings = state.settings
    if settings.warmup_fraction != "auto":
        return settings.warmup_fraction
    if not state.probes:
        share = SHORTEST_WARMUP
    elif slow_ramp(state) and not answered(state):
        share = WARMUP
    elif not minis(state) and not by_edge(state):
        share = min(rules(settings).warmup)
    elif not answered(state):
        share = LONGEST_WARMUP
    else:
        share = warmup_by(rules(settings), descent(start(state), lowest(state)))
    return min(share, *settings.replan_at, 1.0)


def _chooses_warmup(settings: Settings) -> bool:
    return settings.warmup_fraction == "auto" and not settings.warmup_steps


def choose(state: State) -> tuple[float, str]:
    """The peak LR, and why, in words."""
    peak, why = _peak(state)
    share = warmup_share(state)
    if _chooses_warmup(state.settings) and share > SHORTEST_WARMUP:
        why += f", warm-up over {share:.0%} of the run"
    return peak, why


def _peak(state: State) -> tuple[float, str]:
    settings = state.settings
    if not state.probes:
        lr = settings.base_lr or 1e-3
        return lr, (
            f"{settings.total_steps} steps leave too little for a search within max_cost {settings.max_cost}: "
            f"using the optimizer's own LR {lr:.4g}"
        )
    if not answered(state):
        return _by_slow_ramp(state) if slow_ramp(state) else _without_answer(state)
    mark = landmark(state)
    tried = {octave: short for octave, short in responses(state).items() if math.isfinite(short)}
    low, best, high = min(tried), _best(tried), max(tried)
    middle, shift = centre(tried), horizon_octaves(state)
    peak = _within(mark * 2.0 ** (middle - shift), *search_interval(settings))
    moved = ""
    if slow_ramp(state):
        peak, moved = beside_slow_edge(state, peak, fall(start(state), lowest(state)))
    peak, usual = _towards_usual(state, _within(peak, *search_interval(settings)))
    judge = "" if same_scale(state) else " (by training loss: `evaluate` is on another scale)"
    ended = {p.lr: value for p, value in outcomes(state) if isinstance(p, Probed) and math.isfinite(p.forecast.value)}
    doubtful = min((lr for lr, value in ended.items() if math.isinf(value)), default=None)
    trusted = "" if doubtful is None else f" (none trusted from {doubtful:.3g} on)"
    span = f"from {mark * 2.0**low:.3g} to {mark * 2.0**high:.3g}{trusted}"
    if interval_too_low(state):
        shifted = "the best LR seems to lie above the interval, so nothing is taken off for the longer horizon"
    else:
        share, shifted = left(start(state), lowest(state)), f"x {2.0**-shift:.2f} for the longer horizon"
        if share is not None:
            shifted = f"they brought the loss down to {share:.2g} of its start, so {shifted}"
    return peak, (
        f"{len(minis(state))} miniature runs {span}: best at {mark * 2.0**best:.3g}{judge}, "
        f"weighted centre {mark * 2.0**middle:.3g}; {shifted}{moved}{usual}: peak {peak:.4g}"
    )


def _by_slow_ramp(state: State) -> tuple[float, str]:
    """The peak where the slow ramp alone tells it."""
    found, why = below_slow_edge(state)
    peak, usual = _towards_usual(state, _within(found, *search_interval(state.settings)))
    return peak, f"{why}{usual}: peak {peak:.4g}"


def _without_answer(state: State) -> tuple[float, str]:
    """The peak where miniature runs gave no answer: none was affordable, all diverged, or they learned nothing."""
    runs, mark, octaves, name = minis(state), landmark(state), RAMP_ONLY, "ramp's landmark"
    if not runs:
        affordable = affords_another(state, plan(state.settings, validation=state.validation), LEAST_MINIS)
        what = "no miniature run " + ("has its LR inside the interval" if affordable else "is affordable")
    elif not math.isfinite(lowest(state)):
        what, octaves = f"all {len(runs)} miniature runs diverged", min(_octave(p.lr, mark) for p in runs) - 3
    else:
        what, octaves = f"{len(runs)} miniature runs brought the loss down by too little to tell", START
    if by_edge(state):
        below = BELOW_EDGE_SLOWLY if _chooses_warmup(state.settings) else BELOW_EDGE
        below = BELOW_EDGE_TRAINED if _is_fine_tuned(state.settings) else below
        mark, octaves, name = breaks_at(state), below, "edge of divergence"
        name += f" by {_ramps(state) + 1} ramps" if _ramps(state) else ""
    found = _within(mark * 2.0**octaves, *search_interval(state.settings))
    peak, usual = _towards_usual(state, found)
    usual += ", since the network was trained before" if by_edge(state) and _is_fine_tuned(state.settings) else ""
    return peak, f"{what}: {found:.4g}, {-octaves:g} octaves below the {name} {mark:.4g}{usual}: peak {peak:.4g}"


def by_edge(state: State) -> bool:
    """Whether the edge of divergence alone tells the peak, if there is one: nothing was learned in miniature runs, or
    there are none with SGD or of a network that was trained before; and no slow ramp knows better."""
    if slow_ramp(state) or not math.isfinite(breaks_at(state)):
        return False
    if not minis(state):
        return state.settings.proportional_steps or state.settings.trained_before
    return math.isfinite(lowest(state)) and not answered(state)


def breaks_at(state: State) -> float:
    """The edge of divergence, or where a ramp met none the lowest LR that did harm in miniature; infinite without both.

    With BatchNorm a ramp may come back from where it broke out, at an LR far too high to learn by.
    """
    found = edge(state)
    return found if math.isfinite(found) else harmful_from(state)


def _is_fine_tuned(settings: Settings) -> bool:
    """Whether the network was trained before, and a step is as large as the LR, whatever its gradient."""
    return settings.trained_before and not settings.proportional_steps


def _towards_usual(state: State, found: float) -> tuple[float, str]:
    """In a short run half-way from what was found to what is usual, and after a deep fall too; or all of the way there,
    if that was tried and did well. And that in words."""
    usual = None if by_edge(state) and _is_fine_tuned(state.settings) else state.settings.usual_lr
    short, deep = is_short(state.settings), answered(state) and _deep(state)
    if usual is None or not (short or deep):
        return found, ""
    shortfall = responses(state).get(_octave(usual, landmark(state)), math.inf) if deep else math.inf
    peak = after_deep_fall(found, usual, shortfall)
    known = "beside so deep a fall little else was seen" if deep else "so short a search knows little"
    if peak == found:
        return found, ""
    named = f"{usual:.3g}, which is usual,"
    said = f"; {named} did well, and {known}" if peak == usual else f"; half-way to {named} since {known}"
    return _within(peak, *search_interval(state.settings)), said


def _within(lr: float, low: float, high: float) -> float:
    return min(max(lr, low), high)


def _inside(state: State, octave: int) -> bool:
    low, high = search_interval(state.settings)
    return low * (1 - 1e-9) <= landmark(state) * 2.0**octave <= high * (1 + 1e-9)


def _octave(lr: float, mark: float) -> int:
    return round(math.log2(lr / mark))


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
