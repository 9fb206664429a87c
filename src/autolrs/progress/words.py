"""A run's events and numbers as people read them, in plain text."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from autolrs.core import curriculum, search
from autolrs.core.engine import State
from autolrs.core.settings import Settings
from autolrs.core.types import (
    Aborted,
    Committed,
    Event,
    Failed,
    Looked,
    Noted,
    Probed,
    Ranged,
    Weighed,
    profile_steps,
)


def number(value: float | None, digits: int = 3) -> str:
    """Few significant digits; a dash where there is nothing.

    >>> number(0.0012345), number(None), number(float("inf"))
    ('0.00123', '-', 'inf')
    """
    if value is None or math.isnan(value):
        return "-"
    return f"{value:.{digits}g}"


def sparkline(values: Sequence[float], width: int = 32) -> str:
    """Values as one line of block characters, averaged down to `width`; '!' where one is not finite.

    >>> sparkline([3, 2, 1, 0])
    '█▆▃▁'
    """
    if not values:
        return ""
    count = min(width, len(values))
    cuts = [round(i * len(values) / count) for i in range(count + 1)]
    means = [sum(values[a:b]) / (b - a) for a, b in pairwise(cuts)]
    finite = [mean for mean in means if math.isfinite(mean)]
    low, high = (min(finite), max(finite)) if finite else (0.0, 0.0)
    scale = 7 / (high - low) if high > low else 0.0
    return "".join("▁▂▃▄▅▆▇█"[round((mean - low) * scale)] if math.isfinite(mean) else "!" for mean in means)


def clock(seconds: float) -> str:
    """Minutes and seconds.

    >>> clock(75.2)
    '1:15'
    """
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"


def lr_words(start: float, end: float) -> str:
    """One LR, or from where to where."""
    return number(start) if start == end else f"{number(start)} > {number(end)}"


def event_line(event: Event, state: State) -> str | None:
    """An event in one line; None for those that are no news. `state` is the one after it."""
    if isinstance(event, (Probed, Aborted)) and event.sweep:
        return f"{event.steps} steps through the LRs up to {number(event.lr)}"
    if isinstance(event, Ranged):
        return f"range test: search {number(event.lr_min)} to {number(event.lr_max)} ({event.note})"
    if isinstance(event, Probed):
        return None if event.stage < 0 else f"{_of(event, state)}  LR {event.lr:<9.3g}  {_course(event)}"
    if isinstance(event, Aborted):
        return None if event.stage < 0 else f"{_of(event, state)}  LR {event.lr:<9.3g}  stopped: {event.reason}"
    if isinstance(event, Committed):
        loss = f", loss {number(event.losses[-1])}" if event.losses else ""
        cost = f"cost so far {state.raw_steps / max(1, state.committed_steps):.2f} x"
        name = "warm-up" if event.stage < 0 else f"stage {event.stage}"
        lr = lr_words(event.profile[0].lr_start, event.profile[-1].lr_end)
        return f"{name}: {profile_steps(event.profile):,} steps at LR {lr}{loss}; {cost}"
    if isinstance(event, Failed):
        what = "a loss was not finite" if event.level is None else f"the loss had come back up to {number(event.level)}"
        where = f"stage {event.stage}: {what} after {event.steps:,} steps at LRs up to {number(event.lr)}"
        if event.level is None or state.failures:
            return where
        return where + "; a lower LR did not help, so it is put back, and no relapse is undone any more"
    if isinstance(event, Looked):
        lowest = ", the lowest so far" if state.best == event else ""
        return f"validation loss {number(event.loss)} at step {event.step:,}{lowest}"
    if isinstance(event, Weighed):
        return f"one `evaluate` counts as {number(event.evaluate_cost)} steps; validation loss {number(event.loss)}"
    if isinstance(event, Noted):
        return f"note: {event.message}"
    return None


def _course(event: Probed) -> str:
    if len(event.losses) == 1:
        return f"loss {number(event.losses[0])}"
    course = f"{number(event.losses[0])} > {number(event.losses[-1])}"
    return f"loss {course}  forecast {number(event.forecast.value)}"


def _of(event: Probed | Aborted, state: State) -> str:
    count = stage_probes(state)
    of = "" if count is None else f"/{count}"
    return f"stage {event.stage} probe {event.index + 1}{of}"


def best_so_far(settings: Settings, answers: Sequence[Probed | Aborted]) -> int | None:
    """Index of the probe that would win this stage now."""
    finite = [p for p in answers if isinstance(p, Probed) and math.isfinite(p.forecast.value)]
    if not finite:
        return None
    if settings.strategy == "paper":
        return finite[search.pick(settings, [(p.lr, p.forecast.value) for p in finite])].index
    return min(finite, key=lambda p: p.forecast.value).index


def stage_probes(state: State) -> int | None:
    """How many probes this stage has; None where only the strategy knows."""
    if state.settings.strategy != "paper":
        return None
    return _plan(state, state.stage, state.committed_steps).n_probes if state.steps_left != 0 else 0


def planned_steps(state: State) -> float:
    """All steps the run will have taken at its end, as far as that can be known."""
    settings = state.settings
    if settings.total_steps is None:
        return float(state.raw_steps)
    if settings.strategy != "paper":
        searched = state.raw_steps - state.committed_steps
        budget = (getattr(settings, "max_cost", 1.15) - 1.0) * settings.total_steps
        looks = (0.0, *settings.replan_at)  # shares of the run at which LRs are probed
        more_to_come = any(share * settings.total_steps >= state.committed_steps for share in looks)
        return settings.total_steps + (max(budget, searched) if more_to_come else searched)
    steps, committed, index = float(settings.total_steps), settings.warmup_steps, 0
    if settings.lr == "auto":
        steps += settings.range_steps
    while committed < settings.warmup_steps + settings.searched_steps:
        stage = _plan(state, index, committed)
        steps += (stage.n_probes - _kept(settings, stage)) * stage.probe_steps
        committed, index = committed + stage.steps, index + 1
    return steps


def _kept(settings: Settings, stage: curriculum.Stage) -> int:
    """Probes whose steps are not thrown away."""
    return 1 if settings.keep_winner and stage.n_probes else 0


def _plan(state: State, index: int, committed: int) -> curriculum.Stage:
    return curriculum.plan(state.settings, index, committed, validation=state.validation)
