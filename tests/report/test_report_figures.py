"""The data behind the figures, on simulated runs."""

from __future__ import annotations

import math

import numpy as np
import pytest
from simulated_events import events_of

from autolrs import Schedule, Segment
from autolrs.core import search
from autolrs.core.types import Committed, Probed, peak_lr
from autolrs.report import figures
from autolrs.report.info import gather


def paper(**settings):
    return gather(events_of(**settings))


def test_schedule_series_has_both_ends_of_every_segment():
    series = figures.schedule_series(Schedule((Segment(10, 0.1, 0.1), Segment(5, 0.1, 0.0))))
    assert series.steps.tolist() == [0, 10, 10, 15]
    assert series.lrs.tolist() == [0.1, 0.1, 0.1, 0.0]


def test_a_ramp_is_filled_with_points_on_it():
    schedule = Schedule((Segment(10, 0.1, 0.1), Segment(10, 0.1, 0.0)))
    filled = figures.fill_ramps(figures.schedule_series(schedule), points=11)
    assert filled.steps.size == 13
    assert np.interp(15, filled.steps, filled.lrs) == pytest.approx(0.05)


def test_every_probe_stands_where_its_stage_begins_in_the_order_of_asking():
    run = paper()
    points = figures.probe_points(run)
    assert len(points) == sum(len(stage.probes) for stage in run.stages)
    assert [p.order for p in points if p.stage == 1] == [1, 2, 3, 4, 5]
    assert {p.step for p in points if p.stage == 1} == {run.stages[0].steps}


@pytest.mark.parametrize("preset", ["strict", "practical"])
def test_loss_series_lies_on_the_committed_steps_in_order(preset):
    series = figures.loss_series(paper(preset=preset))
    assert (np.diff(series.steps) > 0).all()
    assert series.steps[0] >= 0 and series.steps[-1] <= 700
    assert series.losses.min() - 1e-12 <= series.smooth.min() <= series.smooth.max() <= series.losses.max() + 1e-12


def test_a_long_loss_series_keeps_its_extremes_and_its_gaps():
    events = events_of()
    last = max(i for i, event in enumerate(events) if isinstance(event, Committed))
    spiky = [*events[last].losses[:20], 99.0, math.nan, -99.0, *events[last].losses[20:]]
    events[last] = Committed(events[last].stage, events[last].profile, events[last].steps, tuple(spiky))
    series = figures.loss_series(gather(events), limit=60)
    assert series.losses.size <= 60
    assert np.nanmax(series.losses) == 99.0 and np.nanmin(series.losses) == -99.0
    assert np.isnan(series.losses).any() and (np.diff(series.steps) > 0).all()


def test_running_mean_is_the_mean_of_the_finite_values_around():
    values = np.array([1.0, math.nan, 3.0, 5.0, math.inf, 7.0])
    means = figures._running_mean(values, window=4)
    assert means[2] == pytest.approx(np.mean([1.0, 3.0, 5.0]))
    assert means[3] == pytest.approx(np.mean([3.0, 5.0]))


def test_probe_lines_begin_where_their_stage_does_and_validation_stands_at_its_own_steps():
    from simulated_events import SMALL
    from simulated_events import events_of as make

    run = gather(make(validation=True, **{**SMALL, "eval_every": 10}))
    train, validation = figures.probe_lines(run), figures.probe_lines(run, "validation")
    stage = next(s for s in run.stages if s.metric == "validation")
    assert len(validation) == len(stage.probes)
    assert validation[0].x.tolist() == [stage.start + 10 * (i + 1) for i in range(4)]
    assert validation[0].y.tolist() == list(stage.probes[0].losses)
    assert len(train) + len(validation) == sum(len(s.probes) for s in run.stages)


def test_probes_are_smoothed_and_their_forecast_is_drawn_to_the_horizon():
    run = paper()
    data = figures.probes_data(run, 1)
    assert data.horizon == run.stages[1].steps and not data.thinned
    assert [curve.order for curve in data.curves] == [1, 2, 3, 4, 5]
    assert sum(curve.winner for curve in data.curves) == 1
    for curve in data.curves:
        assert curve.fit is not None and curve.smooth is not None
        assert curve.fit.x[-1] == data.horizon
        assert curve.fit.y[-1] == pytest.approx(curve.forecast, rel=1e-9)
        assert curve.smooth.x.tolist() == curve.losses.x.tolist()
        assert np.std(curve.smooth.y - curve.losses.y) < np.std(curve.losses.y) + 1e-9
    assert data.then.x[0] > 0 and data.then.x[-1] <= data.horizon


def test_thinned_probes_say_so():
    data = figures.probes_data(paper(total_steps=3000, stage_steps=3000, max_stage_steps=3000), 0)
    assert data.thinned
    assert all(curve.smooth is not None and curve.smooth.x.size == 64 for curve in data.curves)
    assert all(curve.losses.x[-1] == 300 for curve in data.curves)


def test_a_probe_that_was_stopped_has_no_forecast_curve():
    run = paper(lr=(1e-2, 50.0), abort_diverged=True)
    curves = [curve for stage in run.stages if stage.probes for curve in figures.probes_data(run, stage.index).curves]
    stopped = [curve for curve in curves if curve.status == "aborted"]
    assert stopped and all(curve.fit is None for curve in stopped)


def test_posterior_passes_near_the_explored_points_and_its_winner_is_the_searchs_pick():
    run = paper()
    data = figures.posterior_info(run, stage=1)
    assert data is not None and data.mean is not None and data.std is not None
    assert data.lrs[0] == pytest.approx(1e-3) and data.lrs[-1] == pytest.approx(1.0)
    for lr, value in data.explored:
        assert float(np.interp(math.log(lr), np.log(data.lrs), data.mean)) == pytest.approx(value, abs=0.05)
    picked = data.explored[search.pick(run.settings, data.explored)]
    assert data.winner == picked and data.chosen == picked[0]
    assert data.orders == (1, 2, 3, 4, 5)
    asked = [event.lr for event in events_of() if isinstance(event, Probed) and event.stage == 1]
    assert [lr for lr, _ in data.explored] == asked


@pytest.mark.parametrize("warmup", [0.05, 0.3])
def test_posterior_of_horizon_has_points_without_the_ramp_and_the_chosen_peak(warmup):
    run = paper(strategy="horizon", total_steps=2000, warmup_fraction=warmup)
    data = figures.posterior_info(run)
    assert data is not None and data.mean is None and data.winner is None
    assert len(data.explored) + len(data.diverged) == len(run.stages[0].probes) - 1
    assert data.chosen == pytest.approx(peak_lr(run.schedule.segments))


def test_no_posterior_before_two_forecasts():
    assert figures.posterior_info(paper(steps=15)) is None


def test_calibration_compares_like_with_like():
    run = gather(events_of(validation=True, total_steps=1500))
    points = figures.calibration(run)
    train = [p for p in points if p.metric == "train"]
    assert [p.actual for p in train] == [run.stages[p.stage].final_loss for p in train]
    validated = [p for p in points if p.metric == "validation"]
    assert validated  # its stage was followed by another, whose probes were validated from there
    assert all(p.forecast == run.stages[p.stage].forecast for p in points)
    assert len(points) < len([s for s in run.stages if s.done])  # the last one has no successor


def test_horizon_makes_no_forecast_of_the_end():
    assert figures.calibration(paper(strategy="horizon")) == []


def test_steps_by_purpose_adds_up():
    run = paper(preset="practical")
    parts = dict(figures.steps_by_purpose(run))
    assert sum(parts.values()) == run.cost.raw
    assert parts["committed"] == 700


def test_a_stage_that_is_not_there_is_named():
    with pytest.raises(ValueError, match=r"\(0, 1, 2\), got 7"):
        figures.probes_data(paper(), 7)


def test_an_lr_that_is_held_over_several_stretches_is_named_once():
    rise, hold, fall = Segment(100, 0.0, 0.1), Segment(100, 0.1, 0.1), Segment(100, 0.1, 0.0)
    held = Schedule((rise, hold, hold, hold, fall, Segment(50, 0.2, 0.2)))
    assert figures.constant_lrs(held) == [(100, 400, 0.1), (500, 550, 0.2)]
    apart = Schedule(tuple(Segment(10, lr, lr) for lr in (0.1, 0.2, 0.1)))
    assert figures.constant_lrs(apart) == [(0, 10, 0.1), (10, 20, 0.2), (20, 30, 0.1)]
    assert figures.constant_lrs(Schedule(())) == []
