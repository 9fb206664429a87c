"""What miniature runs came to: which LRs are trusted, and by what they are judged."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from searches import MINIS, ending, searched

from autolrs.core.settings import Settings
from autolrs.core.strategies.horizon import Horizon
from autolrs.core.strategies.horizon_answers import responses
from autolrs.core.strategies.horizon_choice import BELOW_EDGE_SLOWLY, choose
from autolrs.core.strategies.horizon_minis import learned, ridge, same_scale
from autolrs.core.strategies.horizon_ramp import edge, landmark
from autolrs.core.strategies.horizon_search import limits, next_offset
from autolrs.run.session import Session, drive
from autolrs.testing.simulated import SimulatedHost


@pytest.mark.parametrize(
    ("ends", "octave", "trusted"),
    [
        # All ended far above where they began: far too high.
        ([(-2, 3.0), (-3, 2.5), (-1, 9.0)], -5, []),
        # The best is a stroke of luck: with a lower LR the loss rose.
        ([(-2, 1.0), (-3, 2.5), (-1, 9.0)], -5, []),
        ([(-2, 1.0), (-3, 1.3), (-1, 9.0)], None, [-3, -2]),
        # One that learned nothing did no harm.
        ([(-2, 1.98), (-3, 2.01), (-1, 1.0)], 1, [-3, -2, -1]),
    ],
)
def test_from_the_lowest_lr_on_that_did_harm_nothing_is_trusted(ends, octave, trusted):
    state = searched([ending(*end) for end in ends])
    assert next_offset(state) == octave
    assert sorted(o for o, short in responses(state).items() if math.isfinite(short)) == trusted


def test_a_rise_that_the_calmest_runs_batches_explain_is_no_harm():
    """A new head says the same of all batches at first, so that nothing differs; once it has moved, they do."""

    def end(octave, loss, noise):
        return (octave, loss, *(loss + noise * (-1) ** i for i in range(8)))

    def trusted(*ends, **settings):
        tried = responses(searched([end(*one) for one in ends], **settings))
        return sorted(octave for octave, short in tried.items() if math.isfinite(short))

    assert trusted((-2, 2.2, 0.0), (-3, 2.2, 0.0)) == []
    assert trusted((-2, 2.2, 0.2), (-3, 2.2, 0.2)) == [-3, -2]
    assert trusted((-2, 2.2, 0.2), (-3, 1.9, 0.0)) == [-3], "how much batches differ is known from the calmer one"
    assert trusted((-2, 9.0, 0.2), (-3, 2.2, 0.2)) == [-3]
    assert trusted((-2, 2.2, 0.2), (-3, 2.2, 0.2), proportional_steps=True) == [], "its swings are its own"


def test_from_a_ridge_on_nothing_is_trusted():
    # Of a deep network whose miniature runs have learned too little to tell; a whole run wants .005 there.
    found = searched([(-2, 1.2), (-3, 1.01), (-1, 1.0)])
    assert sorted(o for o, short in responses(found).items() if math.isfinite(short)) == [-3]
    assert next_offset(found) == -4
    assert f"(none trusted from {landmark(found) / 4:.3g} on)" in choose(found)[1]
    # What development tasks show at the most, by chance: 3 % of the progress.
    assert responses(searched([(-2, 1.04), (-3, 1.01), (-1, 1.0)]))[-1] == 0.0


@pytest.mark.parametrize(
    ("values", "lr"),
    [
        ({1: 2.0, 2: 1.0, 4: 1.5}, math.inf),  # a valley
        ({1: 1.0, 2: 1.5, 4: 2.0}, math.inf),
        ({1: 1.0, 2: 1.5, 4: 1.2, 8: 1.4, 16: 1.0}, 2),  # two ridges
        ({1: 1.0, 2: math.inf, 4: 0.9}, math.inf),  # what one that was stopped would have come to, nobody knows
        ({1: 1.0, 2: math.inf, 4: 1.5, 8: 0.9}, 4),
        ({1: math.inf, 2: 1.0, 4: math.inf}, math.inf),
        ({1: math.inf, 2: math.inf, 4: math.inf}, math.inf),
        ({1: 5.0, 2: 6.0, 4: 5.0}, math.inf),  # without progress there is no order to begin with
        ({1: 1.0}, math.inf),
        ({}, math.inf),
    ],
)
@pytest.mark.parametrize("scale", [1.0, 1e-4])
def test_a_ridge_is_worse_than_a_lower_and_a_higher_lr(values, lr, scale):
    assert ridge({key: scale * value for key, value in values.items()}, 4.0 * scale) == lr


def test_where_all_miniature_runs_did_harm_the_peak_lies_far_below_them():
    state = searched([ending(*end) for end in [(-2, 3.0), (-3, 2.5), (-1, 9.0), (-5, 2.6)]])
    peak, why = choose(state)
    assert peak == pytest.approx(landmark(state) * 2.0**-8)
    assert "all 4 miniature runs diverged" in why


@pytest.mark.parametrize(("lowest", "trusted"), [(1.925, False), (1.905, True)])
@pytest.mark.parametrize(("scale", "offset"), [(1.0, 0.0), (1e-3, 0.0), (50.0, -200.0)])
def test_where_the_loss_fell_by_less_than_the_start_is_unsure_by_the_edge_decides(lowest, trusted, scale, offset):
    # The ramp begins with twelve losses, 1.946 in the mean, and .01 is the standard error of that.
    state = searched([(-2, lowest), (-3, 1.97), (-1, 1.98)], scale, offset, noise=0.05)
    peak, why = choose(state)
    assert ("brought the loss down by too little to tell" in why) == (not trusted)
    assert (peak == pytest.approx(edge(state) * 2.0**BELOW_EDGE_SLOWLY)) == (not trusted)


def test_what_a_training_loss_shows_must_exceed_its_own_error_too():
    """Over a tail of few batches a mean is off by chance, as that of the ramp's first ones; a validation loss less."""
    minis = [(-2, 1.905, *[1.905] * 8), (-3, 1.97, *[1.97] * 8), (-1, 1.98, *[1.98] * 8)]

    def known(validated):
        state = searched(minis, noise=0.05, validated=validated)
        short = [replace(probe, steps=12) for probe in state.probes[1:]]  # 4 of them are the tail
        return learned(replace(state, probes=(state.probes[0], *short)))

    assert known(validated=True) and not known(validated=False)


@pytest.mark.parametrize("interval", [(0.5, 4.0), (0.6, 20.0), (0.8, 20.0)])
def test_a_ramp_that_begins_at_an_lr_which_learns_does_not_hide_what_was_learned(interval):
    # An interval that begins at a good LR: the ramp's first losses fall from 3.0 to .4, miniature runs come to .12.
    host, config = SimulatedHost(seed=2), Settings.make(strategy="horizon", total_steps=3000, lr=interval)
    session = Session(host, config, Horizon(), stream=host.stream)
    session.begin()
    while not session.state.committing:
        session.step(host.step())
    assert learned(session.state) and "weighted centre" in choose(session.state)[1]


def test_an_evaluate_like_the_training_loss_is_trusted_where_nothing_was_learned():
    assert same_scale(searched([(-2, 1.98, *[2.0] * 8), (-3, 1.98, *[2.01] * 8)], validated=True))
    assert not same_scale(searched([(-2, 1.5, *[2.0] * 8), (-3, 1.5, *[2.01] * 8)], validated=True))


OTHER_METRICS = {
    "thousandfold": lambda loss: 1000 * loss,
    "shifted below 0": lambda loss: loss - 10,
    "accuracy": lambda loss: -math.exp(-loss),
    "error in per cent": lambda loss: 100 * (1 - math.exp(-loss)),
    "perplexity": lambda loss: math.exp(2 * loss),
}


@pytest.mark.parametrize("metric", OTHER_METRICS.values(), ids=OTHER_METRICS)
def test_an_evaluate_that_measures_something_else_leaves_the_choice_to_the_training_loss(metric):
    trained = [ending(*mini) for mini in MINIS]
    by_itself = searched([(octave, sum(tail[-2:]) / 2, *tail) for octave, _, *tail in trained])
    state = searched([(octave, metric(loss), *tail) for octave, loss, *tail in trained], validated=True)
    assert responses(state) == pytest.approx(responses(by_itself))
    assert choose(state)[0] == pytest.approx(choose(by_itself)[0])
    assert "(by training loss: `evaluate` is on another scale)" in choose(state)[1]
    assert limits(state, -5, 100, 12) == pytest.approx(limits(by_itself, -5, 100, 12))


def test_a_validation_loss_beside_the_training_loss_judges_even_where_little_was_learned():
    few = [(-2, 1.9), (-3, 1.95), (-1, 1.92)]
    state = searched(
        [(octave, loss + 0.03, *tail) for octave, loss, *tail in (ending(*mini) for mini in few)], validated=True
    )
    assert same_scale(state)
    # But not one that is further from it than all that was learned: harder data, say.
    other = searched(
        [(octave, loss + 0.3, *tail) for octave, loss, *tail in (ending(*mini) for mini in few)], validated=True
    )
    assert not same_scale(other)
    assert choose(other)[0] == pytest.approx(choose(state)[0], rel=0.3)


class Measured(SimulatedHost):
    """Its `evaluate` gives another figure than the loss."""

    metric = staticmethod(lambda loss: loss)

    def evaluate(self):
        return self.metric(super().evaluate())


@pytest.mark.parametrize("metric", OTHER_METRICS.values(), ids=OTHER_METRICS)
def test_whole_run_finds_about_the_same_peak_whatever_evaluate_measures(metric, monkeypatch):
    def peak():
        host = Measured(0, "quadratic")
        config = Settings.make(total_steps=3000, strategy="horizon")
        session = Session(host, config, Horizon(), stream=host.stream, validation=True)
        return max(drive(session, host).schedule.lrs())

    usual = peak()
    monkeypatch.setattr(Measured, "metric", staticmethod(metric))
    assert usual / 1.5 < peak() < usual * 1.5


def test_an_interval_that_no_miniature_run_fits_into_is_told_as_such():
    host, config = SimulatedHost(seed=2), Settings.make(strategy="horizon", total_steps=3000, lr=(1.0, 4.0))
    session = Session(host, config, Horizon(), stream=host.stream)
    drive(session, host, 60)
    peak, why = choose(session.state)
    assert peak == 1.0 and "no miniature run has its LR inside the interval" in why
