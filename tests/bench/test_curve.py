from __future__ import annotations

import math
from itertools import pairwise

import pytest

from autolrs.bench.curve import POINTS, Curve, steps_to


def test_measures_at_even_steps_from_a_quarter_of_the_run_to_its_end():
    curve = Curve(lambda: 1.0, 4000)
    for step in range(1, 4001):
        curve.at(step)
    steps = [step for step, _ in curve.points]
    assert len(steps) == POINTS
    assert steps[0] == pytest.approx(1000 + 3000 / POINTS, abs=1) and steps[-1] == 4000
    assert max(b - a for a, b in pairwise(steps)) <= 3000 / POINTS + 1


def test_measures_once_when_steps_skip_several_points():
    calls = []
    curve = Curve(lambda: calls.append(1) or 0.5, 100, points=10)
    curve.at(99)
    curve.at(99)
    assert len(calls) == 1 and curve.points == [(99, 0.5)]
    curve.at(100)
    assert [step for step, _ in curve.points] == [99, 100]


def test_a_run_shorter_than_its_points_is_measured_once_a_step():
    curve = Curve(lambda: 1.0, 8)
    for step in range(1, 9):
        curve.at(step)
    assert [step for step, _ in curve.points] == [2, 3, 4, 5, 6, 7, 8]


def test_no_points_measures_nothing():
    def never() -> float:
        raise AssertionError

    curve = Curve(never, 100, points=0)
    curve.at(100)
    assert curve.points == []


def test_a_loss_that_is_not_finite_counts_as_infinite():
    values = iter([math.nan, -math.inf])
    curve = Curve(lambda: next(values), 8, points=2)
    curve.at(5)
    curve.at(8)
    assert [loss for _, loss in curve.points] == [math.inf, math.inf]


def test_a_wrapped_measure_is_used():
    curve = Curve(lambda: 1.0, 4, points=1)
    inner = curve.measure
    curve.measure = lambda: inner() + 1
    curve.at(4)
    assert curve.points == [(4, 2.0)]


def test_steps_to_is_the_first_crossing_even_if_the_loss_rises_again():
    points = [(10, 0.9), (20, 0.5), (30, 0.6), (40, 0.4)]
    assert steps_to(points, 0.6) == 20
    assert steps_to(points, 0.5) == 20  # at the target counts
    assert steps_to(points, 0.3) == math.inf
    assert steps_to(points, math.nan) == math.inf
    assert steps_to([], 1.0) == math.inf


def test_the_trace_holds_the_lr_and_the_mean_loss_of_each_window():
    curve = Curve(lambda: 0.0, 400)
    for step in range(1, 401):
        curve.at(step, step / 1000, float(step))
    assert len(curve.lrs) == 100 and curve.lrs[0] == (4, 0.004)
    assert curve.losses[0] == (4, 2.5) and curve.losses[-1] == (400, 398.5)


def test_a_loss_that_is_not_finite_makes_its_window_infinite_and_no_points_no_trace():
    curve, none = Curve(lambda: 0.0, 100), Curve(lambda: 0.0, 100, 0)
    for one in (curve, none):
        one.at(1, 0.1, math.nan)
    assert curve.losses == [(1, math.inf)] and none.losses == []


def test_accuracies_are_kept_beside_the_losses():
    curve = Curve(lambda: (0.5, 0.9), 8, 2)
    for step in range(1, 9):
        curve.at(step)
    assert curve.points == [(5, 0.5), (8, 0.5)] and curve.accuracies == [(5, 0.9), (8, 0.9)]
