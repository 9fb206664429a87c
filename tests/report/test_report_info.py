from __future__ import annotations

import math

import numpy as np
import pytest
from simulated_events import events_of

from autolrs import Schedule, Segment
from autolrs.core import engine, search
from autolrs.core.types import Resumed, peak_lr
from autolrs.report import info


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"preset": "practical"},
        {"warmup_steps": 50},
        {"lr": "auto", "range_lr": (1e-4, 10.0)},
        {"abort_diverged": True, "lr": (1e-2, 50.0)},
        {"strategy": "horizon"},
    ],
)
@pytest.mark.parametrize("steps", [None, 333])
def test_costs_and_stages_agree_with_the_engines_own_count(settings, steps):
    events = events_of(steps=steps, **settings)
    state, run = engine.fold(events), info.gather(events)
    assert run.cost.committed == state.committed_steps == run.schedule.total_steps
    assert run.cost.raw == state.raw_steps
    assert run.cost.evaluations == state.evaluations
    assert run.schedule == state.schedule
    assert run.finished == state.finished
    done = [stage for stage in run.stages if stage.done]
    assert sum((stage.profile for stage in done), ()) == state.segments
    assert [stage.start for stage in done] == [sum(s.steps for s in done[:i]) for i in range(len(done))]


def test_the_winner_is_the_probe_whose_lr_was_committed():
    run = info.gather(events_of())
    for stage in run.stages:
        winner = next(probe for probe in stage.probes if probe.index == stage.winner)
        assert winner.lr == peak_lr(stage.profile)
        assert stage.forecast == winner.forecast


def test_settings_that_differ_from_their_defaults():
    run = info.gather(events_of(kappa=5.0))
    assert run.changed["kappa"] == 5.0
    assert "noise" not in run.changed


def test_steps_undone_by_a_restart_are_lost_and_counted_once():
    events = events_of()
    cut = 8
    run = info.gather([*events[: cut + 4], Resumed(cut), *events[cut:]])
    whole = info.gather(events)
    assert run.restarts == 1
    assert run.cost.lost > 0
    assert (run.cost.raw, run.stages) == (whole.cost.raw, whole.stages)


def test_no_events_are_refused():
    with pytest.raises(ValueError, match="Started"):
        info.gather([])


def test_schedule_series_has_both_ends_of_every_segment():
    series = info.schedule_series(Schedule((Segment(10, 0.1, 0.1), Segment(5, 0.1, 0.0))))
    assert series.steps.tolist() == [0, 10, 10, 15]
    assert series.lrs.tolist() == [0.1, 0.1, 0.1, 0.0]


@pytest.mark.parametrize("preset", ["strict", "practical"])
def test_loss_series_lies_on_the_committed_steps_in_order(preset):
    run = info.gather(events_of(preset))
    series = info.loss_series(run)
    assert (np.diff(series.steps) > 0).all()
    assert series.steps[0] >= 0 and series.steps[-1] <= 700
    assert series.losses.min() - 1e-12 <= series.smooth.min() <= series.smooth.max() <= series.losses.max() + 1e-12


def test_posterior_passes_near_the_explored_points_and_its_winner_is_the_searchs_pick():
    run = info.gather(events_of())
    data = info.posterior_info(run, stage=1)
    assert data is not None and data.mean is not None and data.std is not None
    assert data.lrs[0] == pytest.approx(1e-3) and data.lrs[-1] == pytest.approx(1.0)
    for lr, value in data.explored:
        assert float(np.interp(math.log(lr), np.log(data.lrs), data.mean)) == pytest.approx(value, abs=0.05)
    picked = data.explored[search.pick(run.settings, data.explored)]
    assert data.winner == picked and data.chosen == picked[0]


def test_posterior_of_horizon_has_points_without_the_ramp_and_the_chosen_peak():
    run = info.gather(events_of(strategy="horizon", total_steps=2000))
    data = info.posterior_info(run)
    assert data is not None and data.mean is None and data.winner is None
    assert len(data.explored) + len(data.diverged) == len(run.stages[0].probes) - 1
    assert data.chosen == peak_lr(run.schedule.segments)


def test_no_posterior_before_two_forecasts():
    assert info.posterior_info(info.gather(events_of(steps=15))) is None


def test_steps_by_purpose_adds_up():
    run = info.gather(events_of("practical"))
    parts = dict(info.steps_by_purpose(run))
    assert sum(parts.values()) == run.cost.raw
    assert parts["committed"] == 700
