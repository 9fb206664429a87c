"""Algorithm 1 of the paper as a strategy: per stage k probes chosen by LCB, the lowest posterior mean commits.

The same algorithm as nested loops is `core/reference.py`; a property test holds the two equal. The switches (`replay`,
`keep_winner`, `abort_diverged`, `bounded_forecast`, `max_lr_move`, `final_anneal`) are off in the strict preset. Where
the paper is silent: see `core/settings.py`; and a probe that diverged enters the posterior at the stage's worst finite
forecast and can never win.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from autolrs.core import curriculum, search
from autolrs.core.engine import State
from autolrs.core.forecast import forecast_probe
from autolrs.core.interval import ramp
from autolrs.core.types import (
    Aborted,
    Command,
    Commit,
    Forecast,
    Probe,
    Probed,
    Segment,
    Wait,
    constant,
    peak_lr,
)


class Paper:
    """Algorithm 1 (Section 4.3) with the curriculum of Section 4.4."""

    name = "paper"

    def decide(self, state: State) -> Command:
        """Range test if the interval is not known, then warm-up, then stages, then the final anneal."""
        settings = state.settings
        if state.interval is None:
            return _one_at_a_time(state, Probe(-1, 0, ramp(settings.range_steps, settings.range_lr), check_every=1))
        if settings.warmup_steps and state.committed_steps == 0:
            return _warm_up(state)
        if state.steps_left is not None and state.committed_steps >= settings.warmup_steps + settings.searched_steps:
            return _anneal(state)
        return self._search(state)

    def judge(self, state: State, probe: Probe, losses: list[float]) -> Forecast:
        """The exponential forecast at the stage's end, from the probe's (training or validation) losses."""
        every = probe.eval_every if probe.metric == "validation" else 1
        stage_steps = _stage(state).steps if probe.stage >= 0 else len(losses)
        return forecast_probe(state.settings, losses, stage_steps, every)

    def retained(self, state: State) -> frozenset[int]:
        """With `keep_winner`, the end state of the probe that would win now."""
        if not state.settings.keep_winner or not any(_finite(probe) for probe in state.probes):
            return frozenset()
        return frozenset({_winner(state)})

    def _search(self, state: State) -> Command:
        stage = _stage(state)
        asked = len(state.probes) + len(state.outstanding)
        if asked < stage.n_probes:
            if len(state.outstanding) >= state.settings.parallel:
                return Wait()
            lr = search.propose(
                state.settings,
                _reach(state),
                explored(state.probes),
                [peak_lr(probe.profile) for probe in state.outstanding],
                stage=state.stage,
            )
            check = max(1, stage.probe_steps // 8) if state.settings.abort_diverged else 0
            profile = constant(stage.probe_steps, lr)
            return Probe(state.stage, asked, profile, stage.metric, stage.eval_every, check)
        if state.outstanding:
            return Wait()
        return _commit(state, stage)


def explored(probes: Sequence[Probed | Aborted]) -> list[tuple[float, float]]:
    """(LR, loss) of each answer; one that diverged counts as the stage's worst finite forecast (0 if there is none)."""
    probes = sorted(probes, key=lambda probe: probe.index)  # which was answered first must not matter
    values = {id(probe): probe.forecast.value for probe in probes if isinstance(probe, Probed) and _finite(probe)}
    worst = max(values.values(), default=0.0)
    return [(probe.lr, values.get(id(probe), worst)) for probe in probes]


def _finite(probe: Probed | Aborted) -> bool:
    return isinstance(probe, Probed) and math.isfinite(probe.forecast.value)


def _stage(state: State) -> curriculum.Stage:
    return curriculum.plan(state.settings, state.stage, state.committed_steps, validation=state.validation)


def _reach(state: State) -> tuple[float, float]:
    """The interval that this stage may search: all of it, or what `max_lr_move` leaves of it."""
    assert state.interval is not None
    move, previous = state.settings.max_lr_move, state.previous_lr
    if move is None or previous is None:
        return state.interval
    low, high = max(state.interval[0], previous / move), min(state.interval[1], previous * move)
    return (low, high) if low < high else state.interval


def _winner(state: State) -> int:
    """Probe index of the winner among the answers that did not diverge."""
    finite = sorted((probe for probe in state.probes if _finite(probe)), key=lambda probe: probe.index)
    return finite[search.pick(state.settings, explored(finite))].index


def _commit(state: State, stage: curriculum.Stage) -> Commit:
    assert state.interval is not None
    if any(_finite(probe) for probe in state.probes):
        index = _winner(state)
        lr = next(probe.lr for probe in state.probes if probe.index == index)
        kept = index if state.settings.keep_winner else None
        return Commit(state.stage, constant(stage.steps, lr), kept)
    # The previous LR stays, unless it is unknown or just diverged itself.
    previous = state.previous_lr
    if previous is None or any(probe.lr == previous for probe in state.probes):
        lr, what = state.interval[0], "the interval's lowest LR"
    else:
        lr, what = previous, "the previous LR"
    if stage.n_probes:
        note = f"all {len(state.probes)} probes of stage {state.stage} diverged: keeping {what}, {lr:.4g}"
    else:
        note = f"{stage.steps} steps are too few to probe: going on at {what}, {lr:.4g}"
    return Commit(state.stage, constant(stage.steps, lr), None, note)


def _warm_up(state: State) -> Commit:
    assert state.interval is not None
    steps, lr = state.settings.warmup_steps, state.settings.warmup_lr
    peak = math.sqrt(state.interval[0] * state.interval[1]) if lr is None else lr
    return Commit(-1, (Segment(steps, peak / steps, peak),), None, f"linear warm-up to {peak:.4g}")


def _anneal(state: State) -> Commit:
    assert state.interval is not None and state.steps_left is not None
    lr = state.interval[0] if state.previous_lr is None else state.previous_lr
    return Commit(state.stage, (Segment(state.steps_left, lr, 0.0),), None, "final linear anneal to 0")


def _one_at_a_time(state: State, probe: Probe) -> Command:
    return Wait() if state.outstanding else probe
