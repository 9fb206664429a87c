from __future__ import annotations

import json

import pytest
from simulated_run import make_run

from autolrs.cli.doctor import examine


def tamper(folder, change):
    """Rewrite the journal: `change(number, value)` alters a parsed line in place, or returns False to drop it."""
    path = folder / "journal.jsonl"
    lines = []
    for number, line in enumerate(path.read_text().splitlines()):
        value = json.loads(line)
        if change(number, value) is not False:
            lines.append(json.dumps(value))
    path.write_text("\n".join(lines) + "\n")


def kind(value):
    return value.get("event", {}).get("kind")


def verdicts(folder):
    return {check.name: check.verdict for check in examine(folder)}


@pytest.mark.parametrize("preset", ["strict", "practical"])
def test_a_sound_run_passes_every_check(cli, tmp_path, preset):
    make_run(tmp_path / "run", preset=preset, keep_best=True)
    assert set(verdicts(tmp_path / "run").values()) == {"ok"}
    result = cli("doctor", tmp_path / "run")
    assert result.exit_code == 0
    assert "sound (0 warnings)" in result.stdout


@pytest.mark.parametrize("steps", [3, 60, 130, 600])
def test_a_killed_run_is_sound(cli, tmp_path, steps):
    make_run(tmp_path / "run", steps=steps)
    result = cli("doctor", tmp_path / "run")
    assert result.exit_code == 0, result.stdout
    assert "still under way" in result.stdout


def test_a_torn_last_line_is_a_warning(cli, tmp_path):
    make_run(tmp_path / "run", steps=130)
    with open(tmp_path / "run" / "journal.jsonl", "a") as file:
        file.write('{"time": 1, "ev')
    assert verdicts(tmp_path / "run")["last line is whole"] == "warning"
    assert cli("doctor", tmp_path / "run").exit_code == 0


def test_a_changed_loss_contradicts_its_forecast(cli, run_folder):
    def change(number, value):
        if kind(value) == "Probed" and value["event"]["index"] == 1:
            value["event"]["losses"][-1] *= 1.5

    tamper(run_folder, change)
    assert verdicts(run_folder)["forecasts follow from the losses"] == "failed"
    result = cli("doctor", run_folder)
    assert result.exit_code == 1
    assert "checks failed" in result.stderr


def test_a_changed_lr_outside_the_interval_is_found(run_folder):
    def change(number, value):
        if kind(value) == "Asked" and value["event"]["command"]["kind"] == "Commit":
            for segment in value["event"]["command"]["profile"]:
                segment["lr_start"] = segment["lr_end"] = 7.0

    tamper(run_folder, change)
    found = verdicts(run_folder)
    assert found["LRs lie in the interval"] == "failed"
    assert found["decisions come out the same"] == "warning"


def test_another_decision_inside_the_interval_is_only_a_warning(cli, run_folder):
    def change(number, value):
        if kind(value) == "Asked" and value["event"]["command"]["kind"] == "Commit":
            for segment in value["event"]["command"]["profile"]:
                segment["lr_start"] = segment["lr_end"] = 0.5

    tamper(run_folder, change)
    assert verdicts(run_folder)["decisions come out the same"] == "warning"
    assert cli("doctor", run_folder).exit_code == 0


def test_a_missing_event_is_found(run_folder):
    tamper(run_folder, lambda number, value: number != 2)
    assert verdicts(run_folder)["events fit together"] == "failed"


def test_a_schedule_that_does_not_belong_to_the_run_is_found(run_folder):
    path = run_folder / "schedule.json"
    values = json.loads(path.read_text())
    values["segments"][0][1] *= 2
    path.write_text(json.dumps(values))
    assert verdicts(run_folder)["schedule.json agrees"] == "failed"


def test_steps_that_do_not_add_up_are_found(run_folder):
    def change(number, value):
        if kind(value) == "Started":
            value["event"]["settings"]["total_steps"] = 900

    tamper(run_folder, change)
    assert verdicts(run_folder)["committed steps add up"] == "failed"


def test_an_empty_or_foreign_journal_fails(cli, tmp_path):
    (tmp_path / "journal.jsonl").write_text("")
    result = cli("doctor", tmp_path)
    assert result.exit_code == 1
    assert "is empty" in result.stdout.replace("\n", " ")
