import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autolrs.core import reference
from autolrs.core.settings import Settings
from autolrs.core.types import Commit, Noted, Probe, Probed
from autolrs.testing import SimulatedHost
from helpers import RecordingHost, asked, hosts, of_kind, paper_settings, run, small


@settings(max_examples=100)
@given(paper_settings(), hosts(RecordingHost), st.booleans())
def test_engine_and_reference_find_the_same_schedule_by_the_same_steps(values, make, validation):
    expected_host, host = make(), make()
    expected = reference.run(values, expected_host, validation=validation)
    session, events = run(values, host, validation=validation)
    assert session.state.schedule == expected
    assert host.lrs == expected_host.lrs
    assert host.first_lrs == expected_host.first_lrs
    assert repr(host.mean_square) == repr(expected_host.mean_square)  # NaN included
    # What holds of every run:
    assert expected.total_steps == session.committed_steps == values.total_steps
    assert all(values.lr[0] <= lr <= values.lr[1] for lr in host.lrs)
    assert session.raw_steps == host.steps
    for commit in asked(events, Commit):
        answers = {p.lr: p.forecast.status for p in of_kind(events, Probed) if p.stage == commit.stage}
        if any(status != "diverged" for status in answers.values()):
            assert answers[commit.profile[0].lr_start] != "diverged"


@pytest.mark.parametrize("search", ["lcb", "random", "grid"])
@pytest.mark.parametrize("seed", range(3))
def test_lrs_that_diverge_at_once_are_survived_alike(search, seed):
    values = small(lr=(1e-3, 1e30), search=search, seed=seed, n_probes=6, kappa=30.0)  # low enough for means to matter
    session, events = run(values, RecordingHost(seed))
    assert any(p.forecast.status == "diverged" for p in of_kind(events, Probed))
    expected = RecordingHost(seed)
    assert reference.run(values, expected) == session.state.schedule
    assert session.host.lrs == expected.lrs


@pytest.mark.parametrize("search", ["lcb", "random", "grid"])
def test_stages_without_a_survivor_are_decided_alike(search):
    values = small(lr=(1e150, 1e200), search=search)
    session, events = run(values, SimulatedHost())
    assert sum("diverged" in note.message for note in of_kind(events, Noted)) == 3
    assert reference.run(values, SimulatedHost()) == session.state.schedule


@pytest.mark.parametrize("seed", range(3))
def test_schedule_found_with_the_papers_defaults_beats_the_best_constant_lr(seed):
    host, interval = SimulatedHost(seed), (1e-3, 1.0)
    constant = host.loss_after(15_000, host.best_lr(15_000, interval))
    reference.run(Settings(lr=interval, total_steps=15_000), host)
    assert host.loss() < constant


def test_reference_needs_an_interval_and_an_end():
    for values in ({"lr": (0.1, 1.0)}, {"total_steps": 1000}):
        with pytest.raises(ValueError, match="the reference needs"):
            reference.run(Settings(**values), SimulatedHost())


def test_first_step_after_every_restore_uses_the_new_lr():
    host = SimulatedHost()
    _, events = run(small(), host)
    expected = []
    for stage in range(3):
        probes = [p.profile[0].lr_start for p in asked(events, Probe) if p.stage == stage]
        commit = next(c for c in asked(events, Commit) if c.stage == stage)
        expected += [*probes[1:], commit.profile[0].lr_start]  # the first probe follows the snapshot itself
    assert host.first_lrs == expected
