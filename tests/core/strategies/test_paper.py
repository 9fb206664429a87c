import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autolrs.core import engine, strategies
from autolrs.core.settings import Settings
from autolrs.core.strategies.paper import Paper
from autolrs.core.types import (
    Aborted,
    Asked,
    Commit,
    Committed,
    Noted,
    Probe,
    Probed,
    Ranged,
    Segment,
    profile_steps,
)
from autolrs.run.session import Session
from autolrs.testing import SimulatedHost
from helpers import RecordingHost, asked, hosts, of_kind, paper_settings, run, run_altered, small


def test_strategies_are_found_by_name():
    assert strategies.get("paper").name == "paper"
    with pytest.raises(ValueError, match=r"`strategy` must be one of .*; got 'magic'"):
        strategies.get("magic")


def test_strict_algorithm_asks_for_plain_probes_and_commits():
    _, events = run(small(), SimulatedHost(), validation=True)
    for probe in asked(events, Probe):
        assert len(probe.profile) == 1
        assert (probe.check_every, probe.start_from) == (0, None)
    for commit in asked(events, Commit):
        assert (commit.start_from, commit.note) == (None, "")
    assert not of_kind(events, Aborted, Noted, Ranged)


def test_probes_have_tau_prime_steps_and_stages_tau():
    _, events = run(small(), SimulatedHost(), validation=True)
    lengths = [(p.stage, profile_steps(p.profile), p.metric, p.eval_every) for p in asked(events, Probe)]
    assert lengths == [(0, 10, "train", 0)] * 4 + [(1, 20, "train", 0)] * 4 + [(2, 40, "validation", 10)] * 4
    assert [profile_steps(c.profile) for c in asked(events, Commit)] == [100, 200, 400]


def test_validation_probes_are_judged_by_validation_losses():
    _, events = run(small(), SimulatedHost(), validation=True)
    assert {(p.stage, len(p.losses), p.evaluations) for p in of_kind(events, Probed)} == {
        (0, 10, 0),
        (1, 20, 0),
        (2, 4, 4),
    }


# replay


def test_under_replay_all_probes_of_a_stage_see_the_same_batches():
    for replay in (False, True):
        _, events = run(small(replay=replay), SimulatedHost())
        for stage in range(3):
            first = {p.losses[0] for p in of_kind(events, Probed) if p.stage == stage}
            assert len(first) == (1 if replay else 4)


def test_under_replay_the_committed_stretch_begins_with_the_batches_of_its_probes():
    _, events = run(small(replay=True), SimulatedHost())
    for committed in of_kind(events, Committed)[:1]:  # short enough not to be thinned
        first = {p.losses[0] for p in of_kind(events, Probed) if p.stage == committed.stage}
        assert first == {committed.losses[0]}


# keep_winner


@given(paper_settings(replay=True), hosts(), st.booleans())
def test_keeping_the_winners_state_changes_nothing_but_the_cost(settings, make, validation):
    plain, _ = run(settings, make(), validation=validation)
    kept, events = run(settings.with_(keep_winner=True), make(), validation=validation)
    assert kept.state.schedule == plain.state.schedule
    assert repr(kept.host.mean_square) == repr(plain.host.mean_square)
    assert kept.host.position == plain.host.position
    saved = sum(profile_steps(c.profile) - c.steps for c in of_kind(events, Committed))
    assert plain.raw_steps - kept.raw_steps == saved
    assert kept.raw_steps == kept.host.steps


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("winner", ["raw", "posterior"])
def test_keeping_the_winners_state_saves_a_probe_per_stage(seed, winner):
    settings = small(replay=True, winner=winner)
    plain, _ = run(settings, SimulatedHost(seed))
    kept, _ = run(settings.with_(keep_winner=True), SimulatedHost(seed))
    assert plain.raw_steps - kept.raw_steps == 10 + 20 + 40


def test_at_most_one_end_state_is_kept_beside_the_snapshot():
    host = SimulatedHost()
    most = 0

    def watch(session, loss):
        nonlocal most
        most = max(most, len(host._tokens))
        return loss

    run_altered(small(replay=True, keep_winner=True), host, watch)
    assert most == 2
    assert not host._tokens


def test_probe_nearly_as_long_as_its_stage_can_be_kept():
    settings = small(replay=True, keep_winner=True, probe_fraction=0.99, stage_steps=10, max_stage_steps=20)
    plain, _ = run(settings.with_(keep_winner=False), SimulatedHost())
    kept, _ = run(settings, SimulatedHost())
    assert kept.state.schedule == plain.state.schedule


# abort_diverged


def test_diverging_probes_are_stopped_early_and_never_win():
    settings = small(lr=(1e-2, 1e3), stage_steps=100, n_probes=6)
    plain, _ = run(settings, SimulatedHost())
    aborting, events = run(settings.with_(abort_diverged=True), SimulatedHost())
    aborted = of_kind(events, Aborted)
    assert aborted
    assert aborting.raw_steps < plain.raw_steps
    for event in aborted:
        assert event.steps < settings.probe_steps(100 << event.stage)
        assert event.reason.startswith("loss ")
    losers = {(event.stage, event.lr) for event in aborted}
    assert not losers & {(c.stage, c.profile[0].lr_start) for c in asked(events, Commit)}
    assert aborting.state.committed_steps == 700


def test_healthy_probes_are_not_aborted():
    settings = small(replay=True)
    plain, _ = run(settings, SimulatedHost())
    checked, events = run(settings.with_(abort_diverged=True), SimulatedHost())
    assert not of_kind(events, Aborted)
    assert checked.state.schedule == plain.state.schedule


# bounded_forecast


def test_bounded_forecasts_of_positive_losses_are_not_negative():
    settings = small(lr=(1e-3, 0.3), kappa=1.0)
    make = lambda: SimulatedHost(offset=0.0, noise=0.0, batch_noise=0.3)  # noqa: E731
    plain = [p.forecast.value for p in of_kind(run(settings, make())[1], Probed)]
    bounded = [p.forecast.value for p in of_kind(run(settings.with_(bounded_forecast=True), make())[1], Probed)]
    assert min(plain) < 0
    assert min(bounded) >= 0


# max_lr_move


@given(paper_settings(max_lr_move=2.0), hosts())
def test_no_lr_moves_farther_than_allowed_from_the_stage_before(settings, make):
    _, events = run(settings, make())
    commits = [c.profile[0].lr_start for c in asked(events, Commit)]
    diverged = any("diverged" in note.message for note in of_kind(events, Noted))
    for stage, previous in enumerate(commits[:-1], start=1):
        lrs = [p.profile[0].lr_start for p in asked(events, Probe) if p.stage == stage]
        assert all(previous / 2 * (1 - 1e-9) <= lr <= previous * 2 * (1 + 1e-9) for lr in lrs)
        if not diverged:
            assert previous / 2 * (1 - 1e-9) <= commits[stage] <= previous * 2 * (1 + 1e-9)


def test_first_stage_may_move_anywhere():
    _, events = run(small(max_lr_move=1.5, n_probes=6), SimulatedHost())
    lrs = [p.profile[0].lr_start for p in asked(events, Probe) if p.stage == 0]
    assert max(lrs) / min(lrs) > 100


# final_anneal and warm-up


def test_final_anneal_decays_to_zero_over_its_share():
    session, events = run(small(final_anneal=0.25), SimulatedHost())
    *_, before, last = session.state.schedule.segments
    assert last == Segment(175, before.lr_end, 0.0)
    assert session.state.committed_steps == 700
    assert of_kind(events, Noted)[-1].message == "final linear anneal to 0"
    assert not [p for p in asked(events, Probe) if p.stage == asked(events, Commit)[-1].stage]


def test_warm_up_rises_linearly_outside_the_search_and_counts():
    host = RecordingHost()
    session, events = run(small(warmup_steps=50, warmup_lr=0.2), host)
    np.testing.assert_allclose(np.diff(host.lrs[:50], 2), 0, atol=1e-12)
    assert 0 < host.lrs[0] < host.lrs[49] <= 0.2
    assert session.state.schedule.segments[0] == Segment(50, 0.2 / 50, 0.2)
    assert isinstance(of_kind(events, Asked)[0].command, Commit)
    assert session.state.committed_steps == 700
    assert asked(events, Probe)[0].stage == 0


def test_warm_up_ends_at_the_intervals_middle_unless_told():
    session, _ = run(small(warmup_steps=50), SimulatedHost())
    assert session.state.schedule.segments[0].lr_end == pytest.approx(math.sqrt(1e-3))


def test_warm_up_of_one_step_and_a_whole_run_of_switches_work_together():
    settings = Settings.make(
        "practical", lr=(1e-3, 1.0), total_steps=800, stage_steps=100, max_stage_steps=200, n_probes=4, warmup_steps=1
    )
    session, _ = run(settings, SimulatedHost(), validation=True)
    assert session.state.committed_steps == session.state.schedule.total_steps == 800
    assert session.state.schedule.segments[-1].lr_end == 0.0
    assert session.raw_steps == session.host.steps


# Range test


def test_unknown_interval_is_found_first_and_the_search_stays_in_it():
    host = SimulatedHost(batch_noise=0.01)
    _, events = run(small(lr="auto"), host)
    (ranged,) = of_kind(events, Ranged)
    first, *probes = asked(events, Probe)
    assert (first.stage, profile_steps(first.profile)) == (-1, 100)
    assert ranged.lr_max < 3.0  # above 2 the problem diverges
    assert all(ranged.lr_min <= p.profile[0].lr_start <= ranged.lr_max for p in probes)


def test_range_test_is_undone_before_training_begins():
    host = SimulatedHost(batch_noise=0.0)
    _, events = run(small(lr="auto"), host)
    range_probe, first_probe = of_kind(events, Probed, Aborted)[:2]
    assert first_probe.losses[0] == range_probe.losses[0]


# Nothing survives


def poison(*where):
    """Losses of the probes of these (stage, index) become NaN."""

    def alter(session: Session, loss: float) -> float:
        command = session.command
        bad = isinstance(command, Probe) and ((command.stage, command.index) in where or (command.stage, None) in where)
        return math.nan if bad else loss

    return alter


@pytest.mark.parametrize("index", [0, 2, 3])
@pytest.mark.parametrize("abort", [False, True])
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_candidate_with_a_loss_that_is_not_finite_never_wins(index, abort, bad):
    def alter(session, loss):
        command = session.command
        return bad if isinstance(command, Probe) and command.index == index and session.command_steps == 5 else loss

    session, events = run_altered(small(abort_diverged=abort), SimulatedHost(), alter)
    assert session.state.committed_steps == 700
    for stage in range(3):
        failed = next(p.lr for p in of_kind(events, Probed, Aborted) if (p.stage, p.index) == (stage, index))
        assert asked(events, Commit)[stage].profile[0].lr_start != failed


@pytest.mark.parametrize("abort", [False, True])
@pytest.mark.parametrize("search", ["lcb", "random"])
def test_when_the_first_stage_diverges_altogether_the_lowest_lr_is_taken_and_the_journal_says_so(abort, search):
    settings = small(abort_diverged=abort, search=search)
    session, events = run_altered(settings, SimulatedHost(), poison((0, None)))
    assert session.state.schedule.lr_at(0) == 1e-3
    (note,) = of_kind(events, Noted)
    assert note.message == "all 4 probes of stage 0 diverged: keeping the interval's lowest LR, 0.001"
    assert session.state.committed_steps == 700


def test_when_a_later_stage_diverges_altogether_the_previous_lr_stays_and_the_journal_says_so():
    settings = small(search="random")  # which never probes an LR twice
    session, events = run_altered(settings, SimulatedHost(), poison((1, None)))
    first, second, _ = (segment.lr_start for segment in session.state.schedule.segments)
    assert second == first
    (note,) = of_kind(events, Noted)
    assert note.message == f"all 4 probes of stage 1 diverged: keeping the previous LR, {first:.4g}"


def test_previous_lr_that_diverged_itself_is_not_kept():
    # The middle is probed in every stage; made to win the first, it diverges with all others in the second.
    settings = small(n_probes=1)
    session, events = run_altered(settings, SimulatedHost(), poison((1, None)))
    first, second, _ = (segment.lr_start for segment in session.state.schedule.segments)
    (probed,) = [p.lr for p in of_kind(events, Probed) if p.stage == 1]
    assert probed == first
    assert second == 1e-3
    assert "keeping the interval's lowest LR" in of_kind(events, Noted)[0].message


def test_rest_too_short_to_probe_goes_on_at_the_previous_lr_and_says_so():
    session, events = run(small(total_steps=330), SimulatedHost())
    *_, before, last = session.state.schedule.segments
    assert last == Segment(30, before.lr_end, before.lr_end)
    assert of_kind(events, Noted)[-1].message.startswith("30 steps are too few to probe: going on at the previous LR")


def test_evaluate_that_gives_nan_is_a_divergence():
    host = SimulatedHost()
    host.evaluate = lambda: math.nan
    session, events = run(small(), host, validation=True)
    assert {p.forecast.status for p in of_kind(events, Probed) if p.stage == 2} == {"diverged"}
    assert "all 4 probes of stage 2 diverged" in of_kind(events, Noted)[0].message
    assert session.state.committed_steps == 700


def test_paper_strategy_keeps_no_state_of_its_own():
    assert not vars(Paper())
    state = engine.fold([engine.start(small())])
    assert Paper().decide(state) == Paper().decide(state)
