from __future__ import annotations

import pytest
from simulated_run import make_run

pytest.importorskip("plotly")


def test_a_run_becomes_one_file(cli, run_folder, tmp_path):
    out = tmp_path / "out.html"
    result = cli("report", run_folder, "-o", out)
    assert result.exit_code == 0, result.output
    assert f"wrote {out}: 1 run," in result.stdout
    text = out.read_text()
    assert text.startswith("<!doctype html>") and "How each learning rate was chosen" in text
    assert f"autolrs export {run_folder} --to torch" in text


def test_several_runs_are_compared_and_namesakes_are_told_apart(cli, tmp_path):
    for place in ("a", "b"):
        make_run(tmp_path / place / "run", total_steps=200)
    out = tmp_path / "out.html"
    runs = [tmp_path / "a" / "run", tmp_path / "b" / "run"]
    assert cli("report", *runs, "-o", out, "--target", "0.5").exit_code == 0
    text = out.read_text()
    assert "2 runs compared" in text and "steps to loss 0.5" in text
    assert all(str(run) in text for run in runs)


def test_a_run_under_way_and_one_with_a_torn_last_line_are_reported(cli, tmp_path):
    make_run(tmp_path / "run", steps=200)
    with open(tmp_path / "run" / "journal.jsonl", "ab") as file:
        file.write(b'{"time":1,"eve')
    assert cli("report", tmp_path / "run", "-o", tmp_path / "out.html").exit_code == 0
    assert "not finished: 100 steps trained" in (tmp_path / "out.html").read_text()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "does not exist"),
        ("", "nothing was recorded"),
        ('{"hello": 1}\n', "not an autolrs journal"),
        ('{"autolrs_journal":1,"time":1}\n', "the run never began"),
        ('{"autolrs_journal":1,"time":1}\n{"time":1,"event":{"kind":"Nonsense"}}\n', "line 2"),
    ],
)
def test_what_is_no_run_is_refused_as_by_show(cli, tmp_path, content, words):
    folder = tmp_path / "run"
    if content is not None:
        folder.mkdir()
        (folder / "journal.jsonl").write_text(content)
    result, shown = cli("report", folder, "-o", tmp_path / "out.html"), cli("show", folder)
    assert (result.exit_code, shown.exit_code) == (1, 1)
    assert words in result.stderr and result.stderr == shown.stderr
    assert not (tmp_path / "out.html").exists()


def test_a_place_that_cannot_be_written_is_named(cli, run_folder, tmp_path):
    result = cli("report", run_folder, "-o", tmp_path / "nowhere" / "out.html")
    assert result.exit_code == 1 and "nowhere" in result.stderr


def test_at_least_one_run_is_needed(cli):
    assert cli("report").exit_code == 2
