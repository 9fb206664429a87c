"""The peak of the whole run and the length of its warm-up, by all that a search has shown; and that in words."""

from __future__ import annotations

import math

import numpy as np

from autolrs.core.engine import State
from autolrs.core.settings import Settings
from autolrs.core.strategies.horizon_answers import (
    answered,
    best_of,
    breaks_at,
    by_edge,
    falls_back_on_usual,
    grown_in_miniature,
    grown_in_run,
    interval_too_low,
    is_fine_tuned,
    leans_on_usual,
    learned_nothing,
    octave_of,
    only_falls_back,
    ramps_asked,
    responses,
    saw_one_thing,
    usual_of_sgd,
    went_deep,
)
from autolrs.core.strategies.horizon_minis import lowest, minis, outcomes, same_scale, start
from autolrs.core.strategies.horizon_peak import (
    after_deep_fall,
    centre,
    correction,
    descent,
    fall,
    half_way,
    left,
    usual_of_longer,
)
from autolrs.core.strategies.horizon_plan import LEAST_MINIS, SHORTEST_WARMUP, affords_another, is_short, plan
from autolrs.core.strategies.horizon_ramp import landmark, search_interval
from autolrs.core.strategies.horizon_rules import LONGEST_WARMUP, START, off_by, rules, warmup_by
from autolrs.core.strategies.horizon_slow import WARMUP, below_slow_edge, beside_slow_edge, slow_ramp
from autolrs.core.types import Probed

RAMP_ONLY = -2.75  # octaves from the landmark where nothing else is known: best in the mean for 250 to 400 steps
BELOW_EDGE = -4.5  # octaves, where miniature runs tell nothing: best in the mean of development tasks at 600 steps
BELOW_EDGE_SLOWLY = -3.5  # the same after the longest warm-up
BELOW_EDGE_TRAINED = -6.0  # the same of a network that was trained before, but for SGD's: what it knows breaks sooner
HALF = 0.5  # of the progress: an LR that falls short by more in miniature is no good


def choose(state: State) -> tuple[float, str]:
    """The peak LR, and why, in words."""
    peak, why = _peak(state)
    share = warmup_share(state)
    if _chooses_warmup(state.settings) and share > SHORTEST_WARMUP:
        why += f", warm-up over {share:.0%} of the run"
    return peak, why


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
    low, best, high = min(tried), best_of(tried), max(tried)
    middle, shift = centre(tried), horizon_octaves(state)
    peak = _within(mark * 2.0 ** (middle - shift), *search_interval(settings))
    moved = ""
    if slow_ramp(state):
        peak, moved = beside_slow_edge(state, peak, fall(start(state), lowest(state)))
    peak, grown = _grown(settings, peak)
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
        f"weighted centre {mark * 2.0**middle:.3g}; {shifted}{moved}{grown}{usual}: peak {peak:.4g}"
    )


def horizon_octaves(state: State) -> float:
    """By how many octaves the peak is lowered for the longer horizon; not at all where the interval is too low."""
    if interval_too_low(state):
        return 0.0
    begin, best = start(state), lowest(state)
    return correction(state.settings, begin, best) + off_by(rules(state.settings), fall(begin, best))


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
        what, octaves = f"all {len(runs)} miniature runs diverged", min(octave_of(p.lr, mark) for p in runs) - 3
    elif saw_one_thing(state):
        octaves = round(centre(responses(state)), 1)
        what = f"{len(runs)} miniature runs did best far below what is usual, where little is learned but one thing"
    else:
        what, octaves = f"{len(runs)} miniature runs brought the loss down by too little to tell", START
    if by_edge(state):
        below = BELOW_EDGE_SLOWLY if _chooses_warmup(state.settings) else BELOW_EDGE
        below = BELOW_EDGE_TRAINED if is_fine_tuned(state.settings) else below
        mark, octaves, name = breaks_at(state), below, "edge of divergence"
        name += f" by {ramps_asked(state) + 1} ramps" if ramps_asked(state) else ""
    found = _within(mark * 2.0**octaves, *search_interval(state.settings))
    peak, grown = _grown(state.settings, found)
    peak, usual = _towards_usual(state, _within(peak, *search_interval(state.settings)))
    usual += ", since the network was trained before" if by_edge(state) and is_fine_tuned(state.settings) else ""
    return peak, f"{what}: {found:.4g}, {-octaves:g} octaves below the {name} {mark:.4g}{grown}{usual}: peak {peak:.4g}"


def _grown(settings: Settings, peak: float) -> tuple[float, str]:
    """The peak by which steps of the whole run are as large as those of miniature runs were; and that in words."""
    times = grown_in_miniature(settings) / grown_in_run(settings)
    size = "small" if times < 1 else "large"
    return peak * times, "" if times == 1 else f", x {times:.2g} since the optimizer's steps are still {size} there"


def _towards_usual(state: State, found: float) -> tuple[float, str]:
    """Half-way from what was found to what is usual of such a run; and that in words.

    All of the way where miniature runs of a new network tell nothing, and after a deep fall if the usual LR was tried
    and did well; not at all where it did badly.
    """
    settings = state.settings
    short, told, leans = is_short(settings), answered(state), leans_on_usual(settings)
    nothing = falls_back_on_usual(state) and learned_nothing(state)
    if settings.usual_lr is None or (only_falls_back(settings) and not nothing):
        return found, ""
    if by_edge(state) and is_fine_tuned(settings):
        return found, ""
    usual = settings.usual_lr / grown_in_run(settings)
    octave = math.log2(settings.usual_lr / grown_in_miniature(settings) / landmark(state))
    if told and went_deep(state):
        target, known = usual, "beside so deep a fall little else was seen"
        peak = after_deep_fall(found, usual, responses(state).get(round(octave), math.inf))
    elif not short and not nothing and (not leans or (told and _speaks_against(state, octave))):
        return found, ""
    else:
        target = usual if short else usual_of_longer(usual, fall(start(state), lowest(state)) if told else 0.0)
        target = usual_of_sgd(settings) if only_falls_back(settings) else target
        known = "so short a search knows little" if short else "miniature runs see the beginning alone"
        peak = target if nothing else half_way(found, target)
    whole, peak = peak == target, _within(peak, *search_interval(settings))
    if peak == found:
        return found, ""
    named = f"{target:.3g}, which is usual{'' if short or (told and went_deep(state)) else ' of longer runs'},"
    if not whole:
        return peak, f"; half-way to {named} since {known}"
    return peak, f"; {named} did well, and {known}" if told else f"; {named} is taken instead"


def _speaks_against(state: State, usual: float) -> bool:
    """Whether a longer search says that what is usual (in octaves from the landmark) is not for this network: its
    interval ends too low, or it is no good in miniature.

    What it is there lies on the line between the LRs that were tried; one that was stopped fell short by everything.
    """
    octaves, short = zip(*sorted(responses(state).items()), strict=True)
    at_usual = np.interp(usual, octaves, np.minimum(short, 1.0))
    return interval_too_low(state) or bool(at_usual > HALF)


def _within(lr: float, low: float, high: float) -> float:
    return min(max(lr, low), high)
