from __future__ import annotations

import pytest
from simulated_events import events_of

from autolrs.report.compare import compare
from autolrs.report.info import gather


@pytest.fixture(scope="module")
def runs():
    return [("a", gather(events_of())), ("b", gather(events_of(strategy="horizon")))]


def test_by_default_every_run_reaches_the_target(runs):
    comparison = compare(runs)
    assert comparison.target == max(run.losses.smooth.min() for run in comparison.runs)
    assert [run.final_loss for run in comparison.runs] == [info.final_loss for _, info in runs]
    assert all(run.to_target is not None and 0 < run.to_target <= 700 for run in comparison.runs)


def test_a_target_that_no_run_reached_is_never(runs):
    assert [run.to_target for run in compare(runs, target=-1.0).runs] == [None, None]


def test_a_higher_target_is_reached_no_later(runs):
    first, second = (compare(runs, target=target).runs[0].to_target for target in (0.13, 0.2))
    assert second <= first


def test_costs_are_those_of_the_runs(runs):
    for (_, info), row in zip(runs, compare(runs).runs, strict=True):
        assert (row.raw, row.ratio, row.committed) == (info.cost.raw, info.cost.ratio, info.cost.committed)


def test_a_run_that_has_not_begun_training_is_compared_too(runs):
    comparison = compare([*runs, ("c", gather(events_of(steps=10)))])
    assert comparison.runs[2].final_loss is None and comparison.runs[2].to_target is None
