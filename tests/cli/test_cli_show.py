from __future__ import annotations

from simulated_run import make_run

from autolrs.cli.show import profile_words
from autolrs.core.types import Segment, constant


def test_a_finished_run(cli, run_folder):
    result = cli("show", run_folder)
    assert result.exit_code == 0
    for words in ("finished: total_steps reached", "stage_steps=100", "n_probes=4", "in all", "980", "1.40 x"):
        assert words in result.stdout, words
    assert "kappa" not in result.stdout  # at its default
    assert "autolrs export" in result.stdout and "Schedule.load" in result.stdout


def test_a_killed_run_tells_how_far_it_came(cli, tmp_path):
    make_run(tmp_path / "run", steps=200)
    result = cli("show", tmp_path / "run")
    assert result.exit_code == 0
    assert "not finished: 100 of 700 steps committed" in result.stdout
    assert "searching" in result.stdout


def test_a_run_killed_in_its_first_probe_has_no_schedule_to_reuse(cli, tmp_path):
    make_run(tmp_path / "run", steps=3)
    result = cli("show", tmp_path / "run")
    assert result.exit_code == 0
    assert "no schedule to reuse" in result.stdout


def test_kept_probes_and_the_anneal_are_named(cli, tmp_path):
    make_run(tmp_path / "run", preset="practical")
    result = cli("show", tmp_path / "run")
    assert "reused" in result.stdout
    assert "anneal" in result.stdout
    assert "final linear anneal to 0" in result.stdout


def test_the_best_validation_loss_is_told(cli, tmp_path):
    session = make_run(tmp_path / "run", keep_best=True)
    best = session.state.best
    result = cli("show", tmp_path / "run")
    assert f"best validation loss: {best.loss:.4g} at step {best.step}; last look:" in result.stdout


def test_validation_passes_are_counted_in_steps(cli, tmp_path):
    state = make_run(tmp_path / "run", keep_best=True).state
    worth = state.evaluations * state.settings.evaluate_steps
    told = f"worth {worth:,.0f} steps more: {(state.raw_steps + worth) / state.committed_steps:.2f} x"
    assert told in " ".join(cli("show", tmp_path / "run").stdout.split())


def test_the_journal_file_itself_may_be_named(cli, run_folder):
    assert cli("show", run_folder / "journal.jsonl").exit_code == 0


def test_a_foreign_file_is_refused(cli, tmp_path):
    file = tmp_path / "journal.jsonl"
    file.write_text('{"hello": 1}\n')
    result = cli("show", tmp_path)
    assert result.exit_code == 1
    assert "not an autolrs journal" in result.stderr


def test_profile_in_words():
    assert profile_words(constant(10, 0.1)) == "0.1"
    assert profile_words((Segment(5, 0.1, 1.0), Segment(5, 1.0, 0.0))) == "0.1 > 1 > 0"
    assert profile_words(tuple(Segment(1, lr, lr) for lr in (1.0, 2.0, 3.0, 4.0, 5.0))) == "1 > 2 > ... > 5"
