import pytest
from hypothesis import given
from hypothesis import strategies as st

from autolrs.core.curriculum import plan
from autolrs.core.settings import Settings
from helpers import paper_settings


def stages(settings, *, validation=False, start=None):
    """All stages that fill the searched steps."""
    found, committed = [], settings.warmup_steps if start is None else start
    while committed < settings.warmup_steps + settings.searched_steps:
        found.append(plan(settings, len(found), committed, validation=validation))
        committed += found[-1].steps
    return found


def test_tau_doubles_to_tau_max_and_stays():
    steps = [stage.steps for stage in stages(Settings(total_steps=40_000))]
    assert steps == [1000, 2000, 4000, 8000, 8000, 8000, 8000, 1000]


def test_tau_max_that_is_no_power_of_two_times_tau_is_met_exactly():
    steps = [stage.steps for stage in stages(Settings(total_steps=20_000, max_stage_steps=5000))]
    assert steps == [1000, 2000, 4000, 5000, 5000, 3000]


def test_tau_max_equal_to_tau_keeps_every_stage_alike():
    steps = [stage.steps for stage in stages(Settings(total_steps=3000, max_stage_steps=1000))]
    assert steps == [1000, 1000, 1000]


def test_without_total_steps_stages_go_on_for_ever():
    assert plan(Settings(), 10_000, 10**9, validation=False).steps == 8000


def test_last_stage_and_its_probes_are_cut_by_total_steps():
    last = stages(Settings(total_steps=3500))[-1]
    assert (last.steps, last.probe_steps, last.n_probes) == (500, 50, 10)


def test_rest_too_short_for_a_probe_is_not_searched():
    last = stages(Settings(total_steps=3030))[-1]
    assert (last.steps, last.probe_steps, last.n_probes) == (30, 3, 0)


@pytest.mark.parametrize(("tau_max", "first"), [(8000, 3), (5000, 3), (4000, 2), (4001, 3), (1000, 0), (1001, 1)])
def test_validation_loss_begins_in_the_very_stage_where_tau_reaches_tau_max(tau_max, first):
    metrics = [stage.metric for stage in stages(Settings(total_steps=50_000, max_stage_steps=tau_max), validation=True)]
    assert metrics.index("validation") == first
    assert set(metrics[first:]) == {"validation"}


def test_cut_stage_keeps_the_metric_of_its_uncut_tau():
    cut = stages(Settings(total_steps=9000), validation=True)[-1]  # 1000 + 2000 + 4000 + 2000 of 8000
    assert (cut.steps, cut.metric) == (2000, "validation")


def test_without_an_evaluate_every_stage_uses_the_training_loss():
    assert {(s.metric, s.eval_every) for s in stages(Settings(total_steps=40_000))} == {("train", 0)}


@pytest.mark.parametrize(("probe_fraction", "eval_every"), [(0.1, 50), (0.01, 20), (0.0025, 5), (0.0005, 1)])
def test_short_probes_are_evaluated_often_enough_for_four_losses(probe_fraction, eval_every):
    settings = Settings(stage_steps=8000, probe_fraction=probe_fraction)
    stage = plan(settings, 0, 0, validation=True)
    assert stage.eval_every == eval_every
    assert stage.probe_steps // stage.eval_every >= 4


@given(paper_settings(), st.booleans())
def test_stages_fill_the_run_exactly_and_every_probe_has_at_least_four_losses(settings, validation):
    found = stages(settings, validation=validation)
    assert sum(stage.steps for stage in found) == settings.total_steps
    for stage in found:
        assert 0 < stage.steps <= settings.max_stage_steps
        assert stage.probe_steps < stage.steps
        if stage.n_probes:
            assert stage.probe_steps // (stage.eval_every or 1) >= 4


def test_warm_up_and_anneal_are_outside_the_stages():
    settings = Settings(total_steps=10_000, warmup_steps=500, final_anneal=0.2)
    assert sum(stage.steps for stage in stages(settings)) == 7500
