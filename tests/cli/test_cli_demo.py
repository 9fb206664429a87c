from __future__ import annotations

import pytest

pytest.importorskip("torch")
pytest.importorskip("sklearn")
pytest.importorskip("matplotlib")
pytest.importorskip("plotly")

from autolrs.cli.demo import Outcome, free_folder, verdict
from autolrs.core.strategies import STRATEGIES


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_demo_writes_a_run_folder_a_picture_and_a_report(cli, tmp_path, strategy):
    folder = tmp_path / "runs" / "demo"
    result = cli("demo", "--strategy", strategy, "--steps", 800, "--run-dir", folder, "--no-compare")
    assert result.exit_code == 0, result.output
    assert {"journal.jsonl", "schedule.json", "run.png", "report.html"} <= {path.name for path in folder.iterdir()}
    assert "the cost of one training" in result.stdout
    assert "probe 2" in result.stdout
    assert cli("doctor", folder).exit_code == 0
    assert cli("show", folder).exit_code == 0


def test_comparison_says_what_tuning_cost_and_a_second_run_gets_its_own_folder(cli, tmp_path, monkeypatch):
    from autolrs.cli import demo

    monkeypatch.setattr(demo, "COSINE_LRS", (1e-3, 1e-2))
    folder = tmp_path / "demo"
    cli("demo", "--strategy", "paper", "--steps", 100, "--run-dir", folder, "--no-compare")
    result = cli("demo", "--strategy", "paper", "--preset", "strict", "--steps", 100, "--run-dir", folder)
    assert result.exit_code == 0
    assert (tmp_path / "demo-2" / "journal.jsonl").exists()
    for words in ("tuned cosine", "2 tuning runs on another seed + 1", "300", "lower test loss"):
        assert words in result.stdout, words


@pytest.mark.parametrize("arguments", [["--strategy", "magic"], ["--preset", "lucky"], ["--steps", "5"]])
def test_wrong_usage(cli, arguments):
    assert cli("demo", *arguments).exit_code == 2


def test_folder_numbers_go_up(tmp_path):
    for name in ("a", "a-2"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "journal.jsonl").write_text("x")
    assert free_folder(tmp_path / "a").name == "a-3"
    assert free_folder(tmp_path / "b").name == "b"


def test_the_verdict_names_whoever_wins():
    ours = Outcome("AutoLRS", 0.2, 0.95, 200, "", 1.0)
    cases = ((0.1, "Tuned cosine has the lower"), (0.3, "AutoLRS has the lower"), (0.2, "Both have the same"))
    for loss, words in cases:
        rival = Outcome("tuned cosine", loss, 0.95, 600, "", 1.0)
        lines = verdict([ours, rival], 100, 497)
        assert lines[0].startswith(words)
        assert "2.00 x the cost" in lines[1] and "6 x" in lines[1]
