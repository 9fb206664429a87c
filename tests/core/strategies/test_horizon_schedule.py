"""The LR of a `horizon` run: warm-up, hold, decay; without a jump where the budget changes; lower where it dies."""

from __future__ import annotations

import copy
import math
from itertools import pairwise

import numpy as np
import pytest
from fragile import Fragile
from hypothesis import given
from hypothesis import strategies as st

from autolrs.core import engine
from autolrs.core.settings import Settings
from autolrs.core.strategies.horizon import Horizon
from autolrs.core.strategies.horizon_schedule import full_profile
from autolrs.core.types import Failed, Noted, Segment, profile_steps
from autolrs.run.session import Session, drive
from autolrs.testing.simulated import SimulatedHost


def lrs_of(profile):
    return np.array([segment.lr_at(i) for segment in profile for i in range(segment.steps)])


def test_the_peak_is_held_until_its_decay_is_due():
    config = Settings(total_steps=1000, strategy="horizon", hold_until=0.6, decay_to=0.1)
    assert full_profile(config, 1000, 2.0) == (Segment(50, 0.04, 2.0), Segment(550, 2.0, 2.0), Segment(400, 2.0, 0.2))


def test_without_a_hold_the_decay_follows_the_warm_up():
    config = Settings(total_steps=1000, strategy="horizon")
    assert full_profile(config, 1000, 2.0) == (Segment(50, 0.04, 2.0), Segment(950, 2.0, 0.0))


@given(total=st.integers(2, 5000), hold=st.floats(0, 0.9999), warmup=st.floats(0, 0.9))
def test_whatever_is_asked_the_schedule_has_all_steps_and_ends_with_a_decay(total, hold, warmup):
    config = Settings(total_steps=total, strategy="horizon", hold_until=hold, warmup_fraction=warmup)
    profile = full_profile(config, total, 1.0)
    assert profile_steps(profile) == total
    lrs = lrs_of(profile)
    assert lrs.max() <= 1.0 and np.all(np.diff(lrs[int(np.argmax(lrs)) :]) <= 0)
    assert profile[-1].lr_end == 0.0 or len(profile) == 1


@pytest.mark.parametrize("hold", [-0.1, 1.0, math.nan, "half"])
def test_a_hold_outside_the_run_is_refused(hold):
    with pytest.raises(ValueError, match="`hold_until` must be 0 <= hold_until < 1"):
        Settings(total_steps=100, strategy="horizon", hold_until=hold)


def test_averaged_runs_hold_by_default_and_others_do_not():
    made = [Settings.make(strategy="horizon", total_steps=100, averaging=on).hold_until for on in (True, False)]
    assert made == [0.5, 0.0]


def extended(total, at, new_total, **values):
    host = SimulatedHost()
    config = Settings.make(total_steps=total, strategy="horizon", **values)
    session = Session(host, config, Horizon(), stream=host.stream)
    session.begin()
    while not session.done and session.committed_steps < at:
        session.step(host.step())
    session.extend(new_total)
    return drive(session, host)


@pytest.mark.parametrize("at", [500, 1300, 2900])
def test_extended_run_goes_on_from_its_lr_without_a_jump_and_decays_over_the_new_budget(at):
    state = extended(3000, at, 6000)
    lrs = state.schedule.lrs()
    assert state.committed_steps == len(lrs) == 6000
    peak = int(np.argmax(lrs))
    assert np.all(np.diff(lrs[peak:]) < 0)
    assert np.abs(np.diff(lrs[peak:])).max() < 2e-3 * lrs[peak]
    assert lrs[-1] < 1e-3 * lrs[peak]


def test_run_extended_after_its_end_warms_up_again_and_decays():
    state = extended(3000, 3000, 6000)
    lrs = state.schedule.lrs()
    assert state.committed_steps == 6000
    again = int(np.argmax(lrs[3000:]))
    assert again == 150
    assert lrs[3150] == pytest.approx(max(lrs[:3000]) / 2)
    assert np.all(np.diff(lrs[3150:]) < 0)


@pytest.mark.parametrize("at", [500, 1300, 1900, 2900])
def test_extended_run_that_holds_its_peak_goes_on_holding_what_it_has_until_half_of_the_new_budget(at):
    state = extended(3000, at, 6000, hold_until=0.5)
    lrs = state.schedule.lrs()
    assert state.committed_steps == len(lrs) == 6000
    assert np.abs(np.diff(lrs[150:])).max() < 2e-3 * lrs.max()
    assert lrs[at:3000].min() == lrs[at:3000].max() and (lrs[at] == lrs.max()) == (at <= 1500)
    assert np.all(np.diff(lrs[3000:]) < 0) and lrs[-1] < 1e-3 * lrs.max()


def test_run_extended_after_its_end_rises_to_what_the_new_schedule_has_there():
    lrs = extended(3000, 3000, 4000, hold_until=0.5).schedule.lrs()
    assert int(np.argmax(lrs[3000:])) == 50  # 5 % of what is left
    assert lrs[3050] == pytest.approx(max(lrs[:3000]) * 1000 / 2000)
    assert np.all(np.diff(lrs[3050:]) < 0)


@pytest.mark.parametrize("hold", [0.0, 0.5])
@pytest.mark.parametrize(("at", "new_total"), [(20, 6000), (149, 6000), (60, 1500)])
def test_run_whose_budget_changes_in_its_warm_up_still_reaches_its_peak(at, new_total, hold):
    usual = extended(3000, 1000, 3000, hold_until=hold).schedule.lrs()
    lrs = extended(3000, at, new_total, hold_until=hold).schedule.lrs()
    assert lrs[:151] == pytest.approx(usual[:151])
    assert len(lrs) == new_total and lrs[-1] < 2e-3 * lrs.max()


def test_run_that_dies_while_it_holds_goes_on_holding_lower():
    host = Fragile()
    host.limit = 0.2
    state, _ = driven(host, hold_until=0.5)
    lrs = state.schedule.lrs()
    assert state.committed_steps == 4000 and math.isfinite(host.evaluate()) and state.all_failures
    assert lrs[400] == lrs[1999] == lrs.max() <= 0.2 and np.all(np.diff(lrs[2000:]) < 0)


def test_run_can_be_shortened():
    assert extended(6000, 700, 3000).committed_steps == 3000


def test_extending_below_what_is_committed_is_refused():
    with pytest.raises(ValueError, match="total_steps"):
        extended(3000, 1500, 1000)


def test_extending_while_probing_is_refused():
    host = SimulatedHost()
    session = Session(host, Settings.make(total_steps=3000, strategy="horizon"), Horizon(), stream=host.stream)
    session.begin()
    session.step(host.step())
    with pytest.raises(RuntimeError, match="probed"):
        session.extend(5000)


def driven(host, **values):
    """The final state of a run on this host, and its events."""
    config = Settings.make(total_steps=4000, strategy="horizon", **values)
    session, events = Session(host, config, Horizon(), stream=host.stream), []
    session.listeners.append(events.append)
    return drive(session, host), events


@pytest.mark.parametrize("limit", [0.2, 0.01])
def test_run_that_dies_is_undone_and_goes_on_lower(limit):
    host = Fragile()
    host.limit = limit
    state, events = driven(host)
    failed = [e for e in events if isinstance(e, Failed)]
    assert failed and all(e.lr > limit for e in failed)
    assert state.committed_steps == 4000
    assert not host.dead
    assert math.isfinite(host.evaluate())
    assert any("training broke" in e.message for e in events if isinstance(e, Noted))
    assert host._tokens == {}
    assert engine.fold(events) == state
    assert state.raw_steps == host.steps


def test_run_that_dies_again_and_again_does_not_go_back_up_to_its_peak():
    """With averaging the LR ends at a tenth of the peak, and two failures part-way lead below that."""

    class Late(Fragile):
        """Bears any LR until 1500 steps of the run are behind it, and then next to none."""

        def step(self):
            self.limit = math.inf if self.steps < 1500 + 600 else 0.001
            return super().step()

    host = Late()
    with pytest.warns(RuntimeWarning, match="broke 5 times: the LR is not what does it, so from step .* nothing is"):
        state, events = driven(host, averaging=True)
    failed = [e.lr for e in events if isinstance(e, Failed)]
    assert len(failed) > 2 and all(after == pytest.approx(before / 4) for before, after in pairwise(failed))
    assert state.committed_steps == 4000 and math.isfinite(host.evaluate())


def test_run_that_dies_at_every_lr_is_not_tried_for_ever():
    host = Fragile()
    host.limit = 0.0
    with pytest.warns(RuntimeWarning, match="broke 5 times: the LR is not what does it, so from step 0 on nothing is"):
        state, _ = driven(host)
    assert state.committed_steps == 4000
    assert state.raw_steps < 4000 * 1.15 + 6 * 1000


class Spiking(SimulatedHost):
    """For 60 steps from step `at` of the data on nothing is learned but unlearned, if the LR is above `bears`."""

    at, bears = 1760, 0.0

    def step(self):
        if self.at <= self.position < self.at + 60 and self.lr > self.bears:
            self.mean_square = SimulatedHost().mean_square
        return super().step()


def test_run_that_relapses_is_undone_and_goes_on_lower():
    plain, _ = driven(SimulatedHost(), averaging=True)
    peak = max(plain.schedule.lrs())
    host = Spiking()
    host.bears = 0.5 * peak
    state, events = driven(host, averaging=True)
    (failed,) = (e for e in events if isinstance(e, Failed))
    began, steps = 1600, host.at + 80 - 1600  # of the stretch in which it happened, to the check after it
    assert failed.level > 1.0 and failed.lr == pytest.approx(peak) and failed.steps == steps
    assert state.committed_steps == 4000 and host.evaluate() < 0.2
    lrs = state.schedule.lrs()
    assert lrs[:began] == pytest.approx(plain.schedule.lrs()[:began])
    assert lrs[began] == pytest.approx(lrs[began - 1] / 4)
    assert lrs[-1] == pytest.approx(0.1 * peak, rel=0.01)
    assert any("training broke" in e.message for e in events if isinstance(e, Noted))
    assert host._tokens == {}
    assert engine.fold(events) == state and state.raw_steps == host.steps


def test_where_a_lower_lr_relapses_too_it_is_not_the_lrs_fault():
    """As where the data becomes harder: the LR is what it was, and nothing is undone any more."""

    class Harder(SimulatedHost):
        def step(self):
            return super().step() + 3.0 * (self.position > 2400) + 5.0 * (self.position > 3200)

    plain, _ = driven(SimulatedHost(), averaging=True)
    state, events = driven(Harder(), averaging=True)
    failed = [e for e in events if isinstance(e, Failed)]
    assert [round(a.lr / b.lr) for a, b in pairwise(failed)] == [4]
    assert state.hard and state.committed_steps == 4000
    assert state.schedule.lrs() == pytest.approx(plain.schedule.lrs())
    assert engine.fold(events) == state


@pytest.mark.parametrize("problem", ["quadratic", "power"])
@pytest.mark.parametrize("total", [200, 500, 2000])
def test_runs_that_are_well_are_never_undone(problem, total):
    """Losses with outliers: every twentieth batch is thirty times as hard."""

    class Hard(SimulatedHost):
        def step(self):
            return super().step() * (30.0 if self.position % 20 == 7 else 1.0)

    for seed in range(3):
        for host in (SimulatedHost(seed, problem, batch_noise=0.5), Hard(seed, problem)):
            config = Settings.make(total_steps=total, strategy="horizon", averaging=True)
            assert drive(Session(host, config, Horizon(), stream=host.stream), host).all_failures == 0


@pytest.mark.parametrize("stop", [1700, 2100, 2230, 2330, 3000])
def test_a_run_that_relapses_goes_on_from_a_checkpoint_as_it_would_have(stop):
    """Before the relapse, in it, after it was undone, and later."""
    ends = []
    host = Spiking()
    config = Settings.make(total_steps=4000, strategy="horizon", averaging=True)
    session = Session(host, config, Horizon(), stream=host.stream)
    host.bears = 0.1
    session.begin()
    while session.raw_steps < stop:
        session.step(host.step())
    saved, other = copy.deepcopy(session.state_dict()), copy.deepcopy(host)
    again = Session(other, config, Horizon(), stream=other.stream)
    again.load_state_dict(saved)
    for going, at in ((session, host), (again, other)):
        while not going.done:
            going.step(at.step())
        ends.append((going.state.schedule, going.state.levels, going.state.all_failures, at.evaluate()))
    assert ends[0] == ends[1] and ends[0][2] > 0
