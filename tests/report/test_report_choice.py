"""How horizon's choice is told: the chain of steps must lead to the peak that was trained."""

from __future__ import annotations

import math

import pytest
from simulated_events import events_of

from autolrs.core.types import peak_lr
from autolrs.report.choice import horizon_choice
from autolrs.report.info import gather
from autolrs.report.search_specs import ramp_spec


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("validation", [False, True])
def test_the_steps_lead_to_the_peak_that_was_trained(seed, validation):
    # If this fails after a change of the strategy, `choice.horizon_choice` has to follow it.
    run = gather(events_of(strategy="horizon", total_steps=3000, lr=(1e-4, 50.0), seed=seed, validation=validation))
    choice = horizon_choice(run)
    assert choice is not None and choice.centre is not None
    assert choice.peak == pytest.approx(peak_lr(run.schedule.segments))
    assert choice.centre * choice.correction == pytest.approx(choice.peak)
    assert sum(mini.weight for mini in choice.minis) == pytest.approx(1.0)
    assert min(mini.shortfall for mini in choice.minis) == 0.0
    low, high = choice.plausible
    assert low <= choice.peak <= high
    assert f"{choice.centre:.3g}" in choice.words


@pytest.mark.parametrize(("total", "minis"), [(1000, False), (3000, True)])
def test_the_slow_ramp_of_sgd_is_told_and_drawn(total, minis):
    run = gather(events_of(strategy="horizon", total_steps=total, lr=(1e-4, 50.0), proportional_steps=True))
    choice = horizon_choice(run)
    assert choice is not None and choice.slow is not None and bool(choice.minis) == minis
    assert choice.peak == pytest.approx(peak_lr(run.schedule.segments))
    sweeps = [probe for probe in run.stages[0].probes if probe.sweep]
    assert choice.slow.ramp.y.tolist() == list(sweeps[1].losses) != choice.ramp.y.tolist()
    assert choice.slow.ramp.x[0] <= choice.slow.edge <= choice.slow.ramp.x[-1] and choice.slow.broke
    assert f"broke at {choice.slow.edge:.3g}" in choice.words
    assert f"broke at {choice.slow.edge:.3g}" in str(ramp_spec(choice.slow.ramp, choice.slow.edge, "broke at"))
    assert horizon_choice(gather(events_of(strategy="horizon", total_steps=total))).slow is None


def test_the_ramp_has_one_loss_for_each_lr():
    run = gather(events_of(strategy="horizon", total_steps=3000, lr=(1e-4, 50.0)))
    choice = horizon_choice(run)
    ramp = next(probe for probe in run.stages[0].probes if probe.sweep)
    assert choice.ramp.y.tolist() == list(ramp.losses)
    assert choice.ramp.x[0] == pytest.approx(1e-4)
    assert (choice.ramp.x[1:] > choice.ramp.x[:-1]).all()


def test_runs_that_diverged_have_no_weight():
    run = gather(events_of(strategy="horizon", total_steps=3000, lr=(1e-4, 50.0)))
    choice = horizon_choice(run)
    bad = [mini for mini in choice.minis if not math.isfinite(mini.value)]
    assert all(mini.weight == 0.0 and math.isinf(mini.shortfall) for mini in bad)


def test_a_plausible_interval_that_was_never_left_is_open():
    # The best lies at the upper end of this interval: nothing higher may be tried.
    choice = horizon_choice(gather(events_of(strategy="horizon", total_steps=3000, lr=(1e-4, 0.05))))
    assert choice.open_ends[1]


def test_no_choice_is_told_before_it_is_made_nor_for_the_paper():
    assert horizon_choice(gather(events_of(strategy="horizon", steps=30))) is None
    assert horizon_choice(gather(events_of())) is None


def test_with_a_ramp_alone_there_is_a_peak_and_no_chain():
    choice = horizon_choice(gather(events_of(strategy="horizon", total_steps=200)))
    assert choice is not None and choice.centre is None and choice.plausible is None and not choice.minis
    assert "no miniature run is affordable" in choice.words


def test_where_nothing_was_learned_the_peak_is_not_told_as_the_miniature_runs_own():
    choice = horizon_choice(gather(events_of(strategy="horizon", total_steps=3000, lr=(1e-4, 50.0), offset=1000.0)))
    assert choice.minis and choice.centre is None and choice.plausible is None
    assert "below the edge of divergence" in choice.words
    assert choice.peak_words == "peak"
    assert not any(mini.weight for mini in choice.minis)


def test_a_peak_that_the_interval_cuts_keeps_the_weights_of_the_miniature_runs():
    choice = horizon_choice(gather(events_of(strategy="horizon", total_steps=3000, lr=(0.8, 4.0))))
    assert choice.peak == 0.8 and choice.centre is None and choice.peak_words == "peak"
    assert sum(mini.weight for mini in choice.minis) == pytest.approx(1.0)


def test_nothing_is_taken_off_where_the_interval_ends_too_low():
    choice = horizon_choice(gather(events_of(strategy="horizon", total_steps=3000, lr=(1e-5, 0.02))))
    assert choice.too_low and choice.correction == 1.0 and choice.peak == choice.centre > 0.018
    assert "the best LR seems to lie above the interval" in choice.words


def test_a_correction_of_nothing_is_not_told_as_an_interval_that_ends_too_low():
    # Of losses that are not above 0 nobody can say how far they fell: what is taken off is `horizon_shift`.
    run = gather(events_of(strategy="horizon", total_steps=3000, lr=(1e-4, 50.0), offset=-5.0, horizon_shift=0.0))
    choice = horizon_choice(run)
    assert choice.correction == 1.0 and choice.centre is not None and not choice.too_low
    assert "above the interval" not in choice.words
