"""Exports are executed and compared with the schedule they came from."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys

import pytest
from simulated_run import make_run

from autolrs import Schedule, Segment
from autolrs.cli.export import Format, render

SCHEDULE = Schedule((Segment(10, 0.01, 0.1), Segment(20, 0.1, 0.1), Segment(1, 0.03, 0.03), Segment(9, 0.03, 0.0)))


def execute(text: str, **modules) -> dict:
    namespace: dict = {"__name__": "exported"}
    exec(compile(text, "exported.py", "exec"), namespace)
    return namespace


def test_json_is_what_schedule_load_reads(cli, run_folder, tmp_path):
    out = tmp_path / "s.json"
    assert cli("export", run_folder, "--to", "json", "-o", out).exit_code == 0
    assert Schedule.load(out) == Schedule.load(run_folder / "schedule.json")


def test_csv_has_one_row_per_step(cli, run_folder):
    rows = list(csv.reader(io.StringIO(cli("export", run_folder, "--to", "csv").stdout)))
    schedule = Schedule.load(run_folder / "schedule.json")
    assert rows[0] == ["step", "lr"]
    assert [float(lr) for _, lr in rows[1:]] == schedule.lrs().tolist()


def test_torch_snippet_sets_the_lr_of_every_step_and_keeps_group_ratios():
    torch = pytest.importorskip("torch")
    made = execute(render(SCHEDULE, Format.torch))
    groups = [{"params": [torch.zeros(1)], "lr": 0.5}, {"params": [torch.zeros(1)], "lr": 0.05}]
    optimizer = torch.optim.SGD(groups)
    scheduler = made["make_scheduler"](optimizer)
    for step in range(SCHEDULE.total_steps + 3):
        first, second = (group["lr"] for group in optimizer.param_groups)
        assert first == pytest.approx(SCHEDULE.lr_at(step), rel=1e-12)
        assert second == pytest.approx(first / 10, rel=1e-12)
        optimizer.step()
        scheduler.step()


def test_torch_snippet_runs_as_a_script_without_autolrs(cli, run_folder, tmp_path):
    pytest.importorskip("torch")
    script = tmp_path / "lr_schedule.py"
    cli("export", run_folder, "--to", "torch", "-o", script)
    assert "import autolrs" not in script.read_text()
    result = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, cwd=tmp_path, timeout=120)
    first = result.stdout.splitlines()[0].split()
    assert float(first[1]) == Schedule.load(run_folder / "schedule.json").lr_at(0), result.stderr


def test_optax_snippet_agrees_with_the_schedule(tmp_path):
    steps = range(SCHEDULE.total_steps + 3)
    show = f"\nprint([float(schedule(step)) for step in {steps!r}])\n"
    # In a process of its own: JAX's threads do not go together with the forks of other tests.
    script = tmp_path / "snippet.py"
    script.write_text(render(SCHEDULE, Format.optax) + show)
    result = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=200)
    found = json.loads(result.stdout.splitlines()[-1])
    assert found == pytest.approx([SCHEDULE.lr_at(step) for step in steps], rel=1e-5, abs=1e-9), result.stderr


def test_a_schedule_file_can_be_exported_too(cli, tmp_path):
    SCHEDULE.save(tmp_path / "schedule.json")
    result = cli("export", tmp_path / "schedule.json", "--to", "json")
    assert json.loads(result.stdout) == SCHEDULE.to_json()


def test_nothing_committed_is_a_failure(cli, tmp_path):
    make_run(tmp_path / "run", steps=5)
    result = cli("export", tmp_path / "run", "--to", "json")
    assert result.exit_code == 1
    assert "committed no step" in result.stderr


def test_a_file_that_cannot_be_written_is_a_failure(cli, run_folder, tmp_path):
    result = cli("export", run_folder, "--to", "json", "-o", tmp_path / "no" / "such" / "file.json")
    assert result.exit_code == 1
    assert "No such file" in result.stderr
