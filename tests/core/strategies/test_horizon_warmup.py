"""How long the warm-up of a `horizon` run is, and that it is trained in stretches as the rest of it."""

from __future__ import annotations

import copy
import math

import numpy as np
import pytest
from fragile import Fragile
from searches import MINIS, searched

from autolrs.core import engine
from autolrs.core.settings import Settings
from autolrs.core.strategies.horizon import Horizon
from autolrs.core.strategies.horizon_choice import BELOW_EDGE, BELOW_EDGE_SLOWLY, choose, warmup_share
from autolrs.core.strategies.horizon_minis import start
from autolrs.core.strategies.horizon_ramp import edge
from autolrs.core.strategies.horizon_schedule import full_profile
from autolrs.core.types import Committed, Failed
from autolrs.run.session import Session, drive
from autolrs.testing.simulated import SimulatedHost

BEGIN = start(searched([]))


def came_down(descent, **values):
    """A search whose miniature runs brought the loss down by so many e-folds."""
    best = BEGIN * math.exp(-descent)
    return searched([(-2, best), (-3, best + 0.01), (-1, best + 0.1)], **{"averaging": True, **values})


@pytest.mark.parametrize(
    ("descent", "share"), [(0.1, 0.2), (0.4, 0.2), (0.6, 0.1625), (0.8, 0.125), (1.2, 0.05), (1.6, 0.05), (3.0, 0.05)]
)
def test_the_less_miniature_runs_learned_the_longer_is_the_warm_up(descent, share):
    state = came_down(descent)
    assert warmup_share(state) == pytest.approx(share, abs=1e-3)
    why = choose(state)[1]
    assert (f", warm-up over {share:.0%} of the run" in why) == (share > 0.05)


def test_in_short_runs_the_shortest_is_longer():
    assert warmup_share(came_down(1.5, total=600)) == pytest.approx(0.15)
    assert warmup_share(came_down(0.41, total=600)) == pytest.approx(0.2, abs=0.01)
    assert warmup_share(searched([], total=300, averaging=True)) == pytest.approx(0.15)


def test_where_nothing_is_searched_it_is_short():
    config = Settings.make(total_steps=40, strategy="horizon", averaging=True, base_lr=0.1)
    state = engine.evolve(None, engine.start(config))
    assert warmup_share(state) == pytest.approx(0.05) and Horizon().decide(state).profile[0].steps == 2


def test_a_warm_up_of_the_users_own_is_left_alone():
    for given in (0.0, 0.1):
        state = came_down(0.4, warmup_fraction=given)
        assert warmup_share(state) == given and "warm-up" not in choose(state)[1]
    state = came_down(0.4, warmup_steps=7)
    assert "warm-up" not in choose(state)[1]
    assert Horizon().decide(ready(state)).profile[0].steps == 7


@pytest.mark.parametrize("averaging", [True, False])
def test_it_does_not_depend_on_averaging(averaging):
    assert warmup_share(came_down(0.4, averaging=averaging)) == pytest.approx(0.2)


def ready(state):
    """The same search with no money left, so that the run comes next."""
    return engine.replace(state, settings=state.settings.with_(max_cost=1.0))


def test_where_the_edge_alone_is_known_the_warm_up_is_longest_and_the_peak_higher():
    minis = [(-2, 1.99), (-3, 1.98), (-1, 1.985)]
    slowly, plain = searched(minis, averaging=True), searched(minis, averaging=True, warmup_fraction=0.05)
    assert "too little to tell" in choose(slowly)[1] and warmup_share(slowly) == pytest.approx(0.3)
    assert choose(slowly)[0] == pytest.approx(edge(slowly) * 2.0**BELOW_EDGE_SLOWLY)
    own = searched(minis, averaging=True, warmup_steps=7)
    assert choose(plain)[0] == choose(own)[0] == pytest.approx(edge(plain) * 2.0**BELOW_EDGE)
    ramp_alone = searched([], total=300, averaging=True, proportional_steps=True)
    assert warmup_share(ramp_alone) == pytest.approx(0.3) and "edge of divergence" in choose(ramp_alone)[1]


def test_where_all_miniature_runs_diverged_it_is_longest_and_where_nobody_can_say_how_far_they_came_it_is_short():
    assert warmup_share(searched([(-2, math.inf), (-3, math.inf), (-1, math.inf)], averaging=True)) == pytest.approx(
        0.3
    )
    assert warmup_share(searched(MINIS, 1.0, -50.0, averaging=True)) == pytest.approx(0.05)


def test_it_ends_before_the_run_is_planned_anew():
    assert warmup_share(came_down(0.4, replan_at=(0.1, 0.5), max_cost=1.3)) == pytest.approx(0.1)


@pytest.mark.parametrize("value", ["long", 1.0, -0.1, math.nan, None, True])
def test_anything_else_is_refused(value):
    with pytest.raises(ValueError, match="`warmup_fraction` must be"):
        Settings(total_steps=100, strategy="horizon", warmup_fraction=value)


def test_settings_with_it_survive_a_journal():
    made = Settings.make(strategy="horizon", total_steps=100, averaging=True)
    assert made.warmup_fraction == "auto" and Settings.from_dict(made.to_dict()) == made


def run(host, until=None, **values):
    """The final state and the events of a run of 4000 steps whose warm-up takes three stretches and a half."""
    config = Settings.make(total_steps=4000, strategy="horizon", averaging=True, **{"warmup_fraction": 0.35, **values})
    session, events = Session(host, config, Horizon(), stream=host.stream), []
    session.listeners.append(events.append)
    return drive(session, host, until), events


def test_a_long_warm_up_is_trained_in_stretches_and_is_the_one_that_was_planned():
    state, events = run(SimulatedHost())
    ends = np.cumsum([sum(s.steps for s in e.profile) for e in events if isinstance(e, Committed)])
    assert list(ends) == list(range(400, 4001, 400))
    lrs = state.schedule.lrs()
    whole = full_profile(state.settings, 4000, lrs.max())
    assert lrs == pytest.approx([s.lr_at(i) for s in whole for i in range(s.steps)], rel=1e-9)
    assert int(np.argmax(lrs)) == 1400


def test_what_breaks_in_the_middle_of_it_is_undone_by_a_stretch_and_climbs_on_as_long():
    host = Fragile()
    peak = run(SimulatedHost())[0].schedule.lrs().max()
    host.limit = 0.5 * peak
    state, events = run(host)
    failed = [e for e in events if isinstance(e, Failed)]
    assert failed and all(e.steps <= 400 for e in failed)
    lrs = state.schedule.lrs()
    assert state.committed_steps == 4000 and lrs.max() <= host.limit and math.isfinite(host.evaluate())
    assert int(np.argmax(lrs[800:])) + 800 <= 1400 and lrs[1400:2000] == pytest.approx(lrs[1400])


def test_a_run_goes_on_from_a_checkpoint_in_the_middle_of_it():
    whole, _ = run(SimulatedHost())
    host = SimulatedHost()
    session = Session(host, whole.settings, Horizon(), stream=host.stream)
    session.begin()
    while session.committed_steps < 900:
        session.step(host.step())
    saved, other = copy.deepcopy(session.state_dict()), copy.deepcopy(host)
    again = Session(other, whole.settings, Horizon(), stream=other.stream)
    again.load_state_dict(saved)
    assert drive(again, other).schedule == whole.schedule


@pytest.mark.parametrize("at", [100, 400, 1000])
def test_a_run_that_is_extended_in_it_still_reaches_its_peak_when_it_was_to(at):
    usual = run(SimulatedHost())[0].schedule.lrs()
    host = SimulatedHost()
    config = Settings.make(total_steps=4000, strategy="horizon", averaging=True, warmup_fraction=0.35)
    session = Session(host, config, Horizon(), stream=host.stream)
    session.begin()
    while session.committed_steps < at:
        session.step(host.step())
    session.extend(8000)
    lrs = drive(session, host).schedule.lrs()
    assert lrs[:1401] == pytest.approx(usual[:1401]) and len(lrs) == 8000
