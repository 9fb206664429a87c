"""What the answers of a search say: which LRs did well, whether that tells the peak, and what else does."""

from __future__ import annotations

import math
from collections.abc import Mapping

from autolrs.core.engine import State
from autolrs.core.first_steps import in_run
from autolrs.core.interval import is_sweep
from autolrs.core.settings import Settings
from autolrs.core.strategies.horizon_minis import (
    differ,
    harmful_from,
    learned,
    lowest,
    minis,
    outcomes,
    start,
)
from autolrs.core.strategies.horizon_peak import LONGER, centre, fell_deep, left, shortfalls
from autolrs.core.strategies.horizon_plan import is_short, mini_steps
from autolrs.core.strategies.horizon_ramp import SLOW, edge, further_ramps, landmark, search_interval
from autolrs.core.strategies.horizon_rules import rules
from autolrs.core.strategies.horizon_slow import slow_ramp

SURELY = 10.0  # standard errors by which SGD came below its first losses; 6 at most where it unlearned mistakes alone
WHOLE_MOMENTUM = 0.5  # of SGD's usual LR without averaging, which takes half of its momentum
FAR_BELOW = 2.5  # octaves below what is usual of SGD: where one thing was learned alone; 2.2 where more was, and less
LARGEST_MEAN = 12.0  # at the start: e^12 classes; what begins higher may be a sum over a batch, with gradients to match
PROMISING = 0.045  # of the progress: an edge this close to the best is extended


def responses(state: State) -> dict[int, float]:
    """Octaves from the landmark -> by which share of its progress each run fell short of the best; inf if stopped."""
    mark = landmark(state)
    # In the order of asking: sums over them must not depend on which parallel run was answered first.
    answers = sorted(outcomes(state), key=lambda answer: answer[0].index)
    return shortfalls({octave_of(probe.lr, mark): value for probe, value in answers}, start(state))


def answered(state: State) -> bool:
    """Whether miniature runs tell where the peak is: some can be trusted, and they learned something of the whole."""
    return _learned_enough(state) and not saw_one_thing(state)


def _learned_enough(state: State) -> bool:
    trusted, kind = any(map(math.isfinite, responses(state).values())), rules(state.settings)
    surely = kind.ranked and (differ(state) or learned(state, SURELY))
    return trusted and learned(state) and (surely or _left_at_most(state, kind.learned))


def saw_one_thing(state: State) -> bool:
    """Whether SGD's miniature runs learned, but far below what is usual (or the interval's end, if that is lower): they
    saw one thing, as how rare a class is, by LRs at which a whole run learns nothing else."""
    if not (only_falls_back(state.settings) and falls_back_on_usual(state) and _learned_enough(state)):
        return False
    bearable = min(usual_of_sgd(state.settings), search_interval(state.settings)[1])
    return octaves_between(landmark(state) * 2.0 ** centre(responses(state)), bearable) > FAR_BELOW


def _left_at_most(state: State, share: float) -> bool:
    """Whether the best miniature run left no more than this share of the loss, as far as that can be told."""
    found = left(start(state), lowest(state))
    return found is None or found <= share


def went_deep(state: State) -> bool:
    """Whether miniature runs of a new network fell deep. One that was trained before falls as deep by its new head."""
    return not state.settings.trained_before and fell_deep(start(state), lowest(state))


def interval_too_low(state: State) -> bool:
    """Whether the best LR seems to lie above the interval: the highest that fits was the best one, by far."""
    tried = responses(state)
    return ahead(tried) and not inside(state, best_of(tried) + 1)


def ahead(tried: Mapping[int, float], steepness: int = 1) -> bool:
    """Whether the LR next below the best one fell short by more than an edge that is extended, for each octave between
    them; or that to the power of `steepness`: across a gap only a steep slope says that the bottom is not inside."""
    best = best_of(tried) if tried else 0
    below = max((octave for octave in tried if octave < best), default=None)
    return below is not None and tried[below] >= PROMISING * (best - below) ** steepness


def best_of(tried: Mapping[int, float]) -> int:
    return min(tried, key=lambda octave: tried[octave])


def by_edge(state: State) -> bool:
    """Whether the edge of divergence alone tells the peak, if there is one: nothing was learned in miniature runs, or
    there are none with SGD or of a network that was trained before; and no slow ramp or usual LR knows better."""
    if slow_ramp(state) or not math.isfinite(breaks_at(state)):
        return False
    if not minis(state):
        return state.settings.proportional_steps or state.settings.trained_before
    return learned_nothing(state) and not falls_back_on_usual(state)


def learned_nothing(state: State) -> bool:
    """Whether miniature runs ended and tell nothing all the same."""
    return bool(minis(state)) and math.isfinite(lowest(state)) and not answered(state)


def breaks_at(state: State) -> float:
    """The edge of divergence, or where a ramp met none the lowest LR that did harm in miniature; infinite without both.

    With BatchNorm a ramp may come back from where it broke out, at an LR far too high to learn by.
    """
    found = edge(state)
    return found if math.isfinite(found) else harmful_from(state)


def is_fine_tuned(settings: Settings) -> bool:
    """Whether the network was trained before, and a step is as large as the LR, whatever its gradient."""
    return settings.trained_before and not settings.proportional_steps


def leans_on_usual(settings: Settings) -> bool:
    """Whether the search of a new network goes by a usual LR: with Adam and its like."""
    return settings.usual_lr is not None and not settings.trained_before and not settings.proportional_steps


def falls_back_on_usual(state: State) -> bool:
    """Whether what is usual is the peak of a new network where miniature runs tell nothing: with SGD, too, if there
    are norms, but for short runs, whose best peaks lie far apart, and losses that may be sums."""
    settings = state.settings
    as_well = only_falls_back(settings) and settings.usual_lr is not None and not settings.trained_before
    return leans_on_usual(settings) or (as_well and not is_short(settings) and abs(start(state)) <= LARGEST_MEAN)


def only_falls_back(settings: Settings) -> bool:
    """Whether what is usual has no say but that: with SGD, of which miniature runs that tell the peak know more."""
    return settings.proportional_steps and settings.normalised


def usual_of_sgd(settings: Settings) -> float:
    """What SGD usually wants of a longer run: less without averaging, which takes half of its momentum."""
    assert settings.usual_lr is not None
    return settings.usual_lr * LONGER * (1.0 if settings.averaging else WHOLE_MOMENTUM)


def usual_octave(state: State) -> int | None:
    """Where the usual LR lies among miniature runs, if there is one that a search goes by."""
    settings, usual = state.settings, state.settings.usual_lr
    if usual is None or only_falls_back(settings):
        return None
    return octave_of(usual / grown_in_miniature(settings), landmark(state))


def grown_in_miniature(settings: Settings) -> float:
    """How large the optimizer's steps are in a miniature run: RAdam's are small, Adagrad's large; 1 of most."""
    return in_run(mini_steps(settings), settings)


def grown_in_run(settings: Settings) -> float:
    """The same of the whole run."""
    assert settings.total_steps is not None
    return in_run(settings.total_steps, settings)


def ramps_asked(state: State) -> int:
    """Further ramps that were asked for."""
    under_way = sum(is_sweep(probe.profile) for probe in state.outstanding if probe.index != SLOW)
    return len(further_ramps(state)) + under_way


def inside(state: State, octave: int) -> bool:
    low, high = search_interval(state.settings)
    return low * (1 - 1e-9) <= landmark(state) * 2.0**octave <= high * (1 + 1e-9)


def octave_of(lr: float, mark: float) -> int:
    return round(octaves_between(mark, lr))


def octaves_between(low: float, high: float) -> float:
    return math.log2(high / low)
