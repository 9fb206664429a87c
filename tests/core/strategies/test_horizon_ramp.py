"""The landmark and the edge of divergence; where that alone tells the peak, further ramps on other batches."""

from __future__ import annotations

import copy
import math

import numpy as np
import pytest
from searches import MINIS, searched

from autolrs.core import engine
from autolrs.core.interval import is_sweep
from autolrs.core.settings import Settings
from autolrs.core.strategies.horizon import Horizon
from autolrs.core.strategies.horizon_answers import SURELY, answered, breaks_at, by_edge
from autolrs.core.strategies.horizon_choice import BELOW_EDGE_SLOWLY, BELOW_EDGE_TRAINED, RAMP_ONLY, choose
from autolrs.core.strategies.horizon_minis import minis, noise, start_level
from autolrs.core.strategies.horizon_ramp import BEYOND, FURTHER, UNSEEN_DIP, edge, further, landmark
from autolrs.core.types import Aborted, Asked, Commit, Forecast, Probe, Probed, Segment, Wait, peak_lr, profile_steps
from autolrs.run.session import Session, drive
from autolrs.testing.simulated import SimulatedHost

# Ramps of a small VGG-16 on batches of 32: they differ more than the loss falls.
# fmt: off
NOISY_RAMPS = [
    [
        2.48, 2.31, 2.38, 2.35, 2.42, 2.51, 2.36, 2.52, 2.25, 2.39,
        2.39, 2.14, 2.05, 2.59, 3.10, 2.68, 5.19, 4.67, 7.10, 11.47,
    ],
    [
        2.37, 2.40, 2.43, 2.53, 2.37, 2.29, 2.53, 2.45, 2.58, 2.59,
        2.41, 2.23, 2.35, 2.65, 3.54, 2.95, 4.41, 6.97, 3.85, 15.81,
    ],
    [
        2.44, 2.62, 2.65, 2.83, 2.49, 2.68, 2.92, 2.81, 2.56, 2.66,
        2.57, 2.42, 2.41, 3.00, 3.71, 3.66, 4.31, 3.17, 9.22, 7.76,
    ],
]
# fmt: on


RAMP = np.geomspace(1e-6, 10, 20)


def after_ramp(losses, total=1200, **values):
    config = Settings.make(total_steps=total, strategy="horizon", **values)
    now = engine.evolve(None, engine.start(config))
    now = engine.evolve(now, Asked(Horizon().decide(now)))
    return engine.evolve(now, Probed(0, 0, 10.0, len(losses), tuple(losses), Forecast(0, 0, 0, 0, "ok")))


@pytest.mark.parametrize("losses", NOISY_RAMPS)
@pytest.mark.parametrize(("scale", "offset"), [(1.0, 0.0), (1e-3, 0.0), (50.0, -200.0)])
def test_the_landmark_lies_by_the_edge_of_divergence_not_where_chance_puts_it(losses, scale, offset):
    mark = landmark(after_ramp([scale * loss + offset for loss in losses]))
    lowest, step = RAMP[12], RAMP[1] / RAMP[0]  # of the ramp's own LRs; the landmark lies between them
    assert lowest * step**-0.5 <= mark <= lowest * step**0.5
    assert mark == pytest.approx(landmark(after_ramp(losses)))


def test_where_the_loss_never_rises_the_landmark_is_its_lowest_point():
    flat = [4.0] * 8 + [3.0, 2.0, 2.0] + [3.0] * 9
    assert edge(after_ramp(flat)) == math.inf
    assert RAMP[10] * (RAMP[1] / RAMP[0]) ** -0.5 < landmark(after_ramp(flat)) < RAMP[10] * (RAMP[1] / RAMP[0]) ** 0.5


def test_where_the_loss_neither_rises_nor_falls_the_landmark_is_the_highest_lr():
    # In an interval that ends too low there is nothing to see, and the lowest of the losses is chance.
    noisy = [2.0 + 0.1 * math.sin(37 * i * i) for i in range(20)]
    assert landmark(after_ramp(noisy)) == pytest.approx(10.0)
    assert landmark(after_ramp([loss - 1.0 * (12 <= i < 16) for i, loss in enumerate(noisy)])) < 1.0


def test_where_batches_differ_more_than_the_loss_falls_the_edge_is_not_where_it_rises_by_chance():
    # A narrow ResNet-50 on batches of 16: nothing is learned in 20 steps, and nothing breaks before an LR of .2.
    losses = [
        *(2.345, 2.261, 2.362, 2.363, 2.172, 2.404, 2.344, 2.292, 2.569, 2.437),
        *(2.284, 2.31, 2.337, 2.407, 2.539, 3.265, 4.112, 8.604, 4.435, 2.94),
    ]
    state = after_ramp(losses)
    assert 2e-3 < landmark(state) < RAMP[14] < edge(state) < RAMP[15]
    higher = after_ramp([*losses[:15], 3.0, *losses[16:]])  # the less it rises, the later it breaks
    assert edge(state) < edge(higher) < RAMP[15]
    assert edge(after_ramp(losses[:15])) == pytest.approx(RAMP[14])  # a ramp that was stopped ends at the edge


@pytest.mark.parametrize(
    ("fall", "plateau", "values"),
    [
        (0.02, True, {"proportional_steps": True}),
        (0.6, False, {"proportional_steps": True}),
        (0.02, False, {}),
        (0.02, False, {"proportional_steps": True, "total": 900}),
    ],
)
def test_where_sgd_is_on_a_plateau_until_it_breaks_the_landmark_lies_by_the_edge(fall, plateau, values):
    """Where its loss was lowest by no more than batches differ is chance."""
    flat = [2.3 + 0.1 * math.sin(37 * i * i) - fall * (i in (12, 13)) for i in range(15)]
    state = after_ramp([*flat, 3.0, 5.0, 9.0, 9.0, 9.0], **values)
    found = landmark(state) == pytest.approx(edge(state) * 2.0**-UNSEEN_DIP)
    assert found == plateau


def test_a_ramp_without_any_finite_loss_has_a_landmark_all_the_same():
    for bad in (math.nan, math.inf):
        assert 1e-6 <= landmark(after_ramp([bad] * 20)) <= 10


NOTHING = [(-2, 1.99), (-3, 1.98), (-1, 1.985)]


def hardly(**values):
    """A search whose miniature runs have learned nothing, and which cannot afford a fourth beside two ramps."""
    return searched(NOTHING, **{"averaging": True, "total": 1200, "max_cost": 1.11, **values})


def answer(state, broke, *, losses=True):
    """Ask for the next probe, a ramp, and answer it: its loss breaks out so many octaves above the first one's edge."""
    probe = Horizon().decide(state)
    assert isinstance(probe, Probe) and is_sweep(probe.profile)
    state = engine.evolve(state, Asked(probe))
    return engine.evolve(state, answered_by(probe, broke, losses=losses))


def answered_by(probe, broke=0.0, *, losses=True):
    if not is_sweep(probe.profile):
        promise = Forecast(1.98, 0, 0, 0, "ok")
        return Probed(0, probe.index, peak_lr(probe.profile), profile_steps(probe.profile), (), promise)
    lrs = [segment.lr_start for segment in probe.profile]
    seen = tuple(1.9 if lr < edge(hardly()) * 2.0**broke else 99.0 for lr in lrs) if losses else ()
    return Probed(0, probe.index, max(lrs), len(lrs), seen, Forecast(0, 0, 0, 0, "ok"), sweep=True)


def test_two_more_are_asked_for_which_come_to_the_edge_sooner_and_the_peak_goes_by_the_mean():
    state, first = hardly(), edge(hardly())
    assert by_edge(state)
    octaves = math.log2(10 / 1e-6) / 19
    for below in FURTHER:
        probe = Horizon().decide(state)
        lrs = np.array([segment.lr_start for segment in probe.profile])
        assert np.diff(np.log2(lrs)) == pytest.approx(octaves)
        assert math.log2(first / lrs[0]) == pytest.approx(below, abs=octaves / 2)
        assert BEYOND - octaves < math.log2(lrs[-1] / first) <= BEYOND
        state = answer(state, broke=0.0)
    command = Horizon().decide(state)
    assert isinstance(command, Commit) and "edge of divergence by 3 ramps" in command.note
    assert command.aim == pytest.approx(edge(state) * 2.0**BELOW_EDGE_SLOWLY)
    assert len(minis(state)) == 3 and choose(state)[1].startswith("3 miniature runs")


def test_each_ramp_moves_the_edge_by_its_share_and_one_that_was_lost_by_nothing():
    once = answer(hardly(), 0.0)
    twice, lower, never = answer(once, 0.0), answer(answer(hardly(), -3.0), 0.0), answer(answer(hardly(), 9.0), 0.0)
    assert math.log2(edge(twice) / edge(lower)) == pytest.approx(1.0, abs=0.25)  # three octaves, a third of them
    assert edge(twice) < edge(never) < edge(hardly()) * 2.0**BEYOND
    assert edge(answer(once, 0.0, losses=False)) == edge(once) != edge(twice)


@pytest.mark.parametrize(
    ("cost", "runs", "ramps"), [(1.08, 3, 0), (1.09, 3, 1), (1.11, 3, 2), (1.15, 5, 2), (1.5, 7, 2)]
)
def test_money_for_them_is_kept_and_no_miniature_run_follows(cost, runs, ramps):
    state, kinds = hardly(max_cost=cost), []
    while isinstance(command := Horizon().decide(state), Probe):
        kinds.append(is_sweep(command.profile))
        state = engine.evolve(engine.evolve(state, Asked(command)), answered_by(command))
    assert (len(minis(state)), sum(kinds)) == (runs, ramps) and kinds == sorted(kinds)
    assert state.raw_steps <= round((cost - 1) * 1200)


def test_none_where_miniature_runs_tell_the_peak():
    state = searched(MINIS, averaging=True, total=1200)
    command = Horizon().decide(state)
    assert not isinstance(command, Probe) or not is_sweep(command.profile)


def test_a_network_that_was_trained_before_begins_far_lower_but_with_sgd():
    """A step of Adam has the size of its LR however small the gradient is, and breaks what the network knows."""
    new, old, sgd = hardly(), hardly(trained_before=True), hardly(trained_before=True, proportional_steps=True)
    assert choose(new)[0] == pytest.approx(edge(new) * 2.0**BELOW_EDGE_SLOWLY) == choose(sgd)[0]
    assert choose(old)[0] == pytest.approx(edge(new) * 2.0**BELOW_EDGE_TRAINED)
    assert BELOW_EDGE_TRAINED < BELOW_EDGE_SLOWLY - 2
    assert "since the network was trained before" in choose(old)[1]
    assert "before" not in choose(new)[1] + choose(sgd)[1]


def test_where_miniature_runs_tell_the_peak_an_earlier_training_changes_nothing():
    new, old = (searched(MINIS, averaging=True, total=1200, trained_before=before) for before in (False, True))
    assert choose(new) == choose(old)


def test_what_is_usual_of_new_networks_is_not_asked_of_old_ones_that_go_by_the_edge():
    much = [(-2, 0.5), (-3, 0.51), (-1, 0.6)]
    for ends, before, usual in ((NOTHING, False, True), (NOTHING, True, False), (much, True, True)):
        state = searched(ends, trained_before=before, total=600, averaging=True, usual_lr=0.02)
        assert ("which is usual" in choose(state)[1]) == usual


@pytest.mark.parametrize("before", [False, True])
def test_where_the_ramp_is_all_there_is_the_edge_knows_more_of_an_old_network(before):
    state = searched([], total=300, averaging=True, trained_before=before)
    assert by_edge(state) == before
    wanted = edge(state) * 2.0**BELOW_EDGE_TRAINED if before else landmark(state) * 2.0**RAMP_ONLY
    assert choose(state)[0] == pytest.approx(wanted)


def test_those_that_would_begin_below_the_users_interval_are_left_out():
    assert [lrs.size for lrs in further(hardly())] == [12, 16]
    narrow = hardly(lr=(1e-4, 10.0))
    assert all(lrs[0] >= 1e-4 and lrs[-1] <= 10.0 for lrs in further(narrow)) and len(further(narrow)) == 1
    assert not further(hardly(lr=(0.01, 10.0)))
    assert isinstance(Horizon().decide(hardly(lr=(0.01, 10.0), max_cost=1.09)), Commit)


def test_several_at_once_end_at_the_same_peak():
    one = answer(answer(hardly(), 0.0), -2.0)
    state, probes = hardly(parallel=4), []
    while isinstance(command := Horizon().decide(state), Probe):
        probes.append(command)
        state = engine.evolve(state, Asked(command))
    assert isinstance(command, Wait) and len(probes) == 2
    for probe, broke in zip(reversed(probes), (-2.0, 0.0), strict=True):  # the second one is answered first
        state = engine.evolve(state, answered_by(probe, broke))
    assert choose(state)[0] == pytest.approx(choose(one)[0], rel=1e-12)


def test_one_that_was_stopped_counts_up_to_there():
    probe = Horizon().decide(hardly())
    state = engine.evolve(hardly(), Asked(probe))
    stopped = Aborted(0, probe.index, 1.0, 5, (1.9,) * 5, "loss nan after 5 steps", sweep=True)
    state = engine.evolve(state, stopped)
    assert edge(state) == pytest.approx(math.sqrt(edge(hardly()) * probe.profile[4].lr_start))
    assert profile_steps(Horizon().decide(state).profile) == 16  # and the search goes on


@pytest.mark.parametrize(
    ("left", "proportional", "told"), [(0.6, True, True), (0.7, True, False), (0.7, False, True), (0.75, False, True)]
)
def test_of_sgd_that_has_hardly_begun_to_learn_the_edge_knows_more(left, proportional, told):
    best = left * 1.99
    minis = [(-2, best), (-3, best + 0.01), (-1, best + 0.02)]
    state = searched(minis, noise=0.3, averaging=True, proportional_steps=proportional)
    assert answered(state) == told and by_edge(state) == (not told)


@pytest.mark.parametrize(("worse", "told"), [(0.1, False), (0.15, True)])
def test_unless_its_lrs_can_be_told_apart_by_more_than_batches_differ(worse, told):
    state = searched([(-2, 1.4), (-3, 1.4 + worse)], noise=0.3, averaging=True, proportional_steps=True)
    assert noise(state) * 3 / math.sqrt(30) == pytest.approx(0.12, abs=0.01)
    assert answered(state) == told and by_edge(state) == (not told)


@pytest.mark.parametrize(("batches", "told"), [(0.1, True), (0.3, False)])
def test_unless_it_has_surely_learned(batches, told):
    """Its good LRs may do alike, with worse ones on both sides given up."""
    state = searched([(-2, 1.4), (-3, 1.4)], noise=batches, averaging=True, proportional_steps=True)
    sure = SURELY * noise(state) / math.sqrt(12)
    assert (start_level(state) - 1.4 > sure) == told == answered(state)


def test_what_did_harm_in_miniature_is_beyond_the_edge_where_the_ramp_came_back_from_it():
    """BatchNorm's loss falls back to that of guessing at any LR: nothing is learned there."""
    start = [2.3, 2.7, 2.6, 2.9, 2.4]
    state = after_ramp([*start, *([2.6] * 10), 5.1, 6.5, 2.5, 2.8, 2.9], proportional_steps=True)
    assert math.isinf(edge(state)) and landmark(state) == pytest.approx(10)
    harm = {2.5: 6.0, 1.25: 5.0, 0.625: 4.5, 0.15: 2.7}
    for index, (lr, loss) in enumerate(harm.items(), start=1):
        state = engine.evolve(state, Asked(Probe(0, index, (Segment(24, lr, lr),))))
        promise = Forecast(loss, 0, 0, 0, "ok")
        state = engine.evolve(state, Probed(0, index, lr, 24, (), promise, 0, (loss,) * 8))
    assert by_edge(state) and breaks_at(state) == 0.625
    assert choose(state)[0] == pytest.approx(0.625 * 2.0**BELOW_EDGE_SLOWLY)


def session(host, **values):
    """A run on batches that differ by more than can be learned in miniature, and what it records."""
    config = Settings.make(total_steps=1200, strategy="horizon", averaging=True, **values)
    made, events = Session(host, config, Horizon(), stream=host.stream), []
    made.listeners.append(events.append)
    return made, events


class Steep(SimulatedHost):
    """Diverges above an LR of 1/32."""

    def set_lr(self, lr):
        super().set_lr(64 * lr)


def deep(seed=0):
    return Steep(seed, offset=100.0, batch_noise=0.1)


def test_a_run_with_further_ramps_ends_within_its_cost_and_says_what_it_went_by():
    made, events = session(deep())
    state = drive(made, made.host)
    ramps = [event for event in events if isinstance(event, (Probed, Aborted)) and event.sweep]
    assert [event.index for event in ramps] == [0, len(minis_of(events)) + 1, len(minis_of(events)) + 2]
    assert len({event.losses for event in ramps}) == 3  # each broke on batches of its own
    assert state.raw_steps <= 1.15 * 1200 and state.committed_steps == 1200
    why = next(event.command.note for event in events if isinstance(event, Asked) and isinstance(event.command, Commit))
    assert "too little to tell" in why and "by 3 ramps" in why


def minis_of(events):
    return [event for event in events if isinstance(event, (Probed, Aborted)) and not event.sweep]


@pytest.mark.parametrize("ramp", [1, 2])
def test_a_run_that_is_killed_in_a_further_ramp_goes_on_to_the_same_schedule(ramp):
    whole = session(deep())[0]
    drive(whole, whole.host)
    made, events = session(deep())
    made.begin()
    sweeps = 0
    while sweeps <= ramp:  # up to the first step of that ramp
        made.step(made.host.step())
        asked = [e.command for e in events if isinstance(e, Asked) and isinstance(e.command, Probe)]
        sweeps = sum(is_sweep(command.profile) for command in asked)
    made.step(made.host.step())
    saved, host = copy.deepcopy(made.state_dict()), copy.deepcopy(made.host)
    again, _ = session(host)
    again.load_state_dict(saved)
    assert drive(again, host).schedule == whole.state.schedule
