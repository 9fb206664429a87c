"""`autolrs bench list`, `run` and `table`."""

from __future__ import annotations

import fcntl
import json
import sys

import pytest

pytest.importorskip("torch")

from autolrs.bench import runner
from autolrs.bench.methods import METHODS
from autolrs.bench.tasks import TASKS, Task
from autolrs.bench.tuning import Candidate
from tiny_task import TINY


@pytest.fixture(autouse=True)
def tiny(monkeypatch):
    monkeypatch.setitem(TASKS, "tiny", TINY)


@pytest.fixture
def out(tmp_path):
    return tmp_path / "rows.jsonl"


@pytest.fixture
def bench_run(cli, out):
    def invoke(task="tiny", method="horizon", seeds="0,1"):
        return cli("bench", "run", "--task", task, "--method", method, "--seeds", seeds, "--out", out)

    return invoke


def failed(result, *words):
    """Exit code 1 and one line on stderr with these words."""
    assert result.exit_code == 1, result.output
    assert len(result.stderr.strip().splitlines()) == 1, result.stderr
    for word in words:
        assert word in result.stderr
    return True


def no_data():
    raise FileNotFoundError("data not found: apt-get install it")


# list


def test_list_shows_tasks_and_methods(cli, monkeypatch):
    monkeypatch.setitem(TASKS, "poor", Task("poor", 1234, (1e-3, 1.0), TINY.build, held_out=True, find_data=no_data))
    result = cli("bench", "list")
    assert result.exit_code == 0, result.output
    lines = {line.split()[0]: line.split() for line in result.stdout.splitlines() if line.strip()}  # the last profile
    assert set(TASKS) | set(METHODS) <= set(lines)
    assert lines["tiny"] == ["tiny", "cpu", "48", "0.01", "to", "1", "-", "here"]
    assert lines["poor"] == ["poor", "cpu", "1,234", "0.001", "to", "1", "held", "out", "missing"]
    assert lines["vgg16-cifar10"][:3] == ["vgg16-cifar10", "paper", "136,500"]
    assert "missing: data not found: apt-get install it" in result.stdout
    assert lines["cosine"] == ["cosine", "tuned", "6", "rival", "yes"]
    assert lines["hypergradient"][2] == "36"
    assert lines["horizon"] == ["horizon", "-", "-", "ours", "yes"]


def test_list_says_which_extra_a_method_needs(cli, monkeypatch):
    monkeypatch.setitem(sys.modules, "prodigyopt", None)
    line = next(line for line in cli("bench", "list").stdout.splitlines() if line.startswith("prodigy"))
    assert "no: pip install 'autolrs[bench]'" in line


# run


def test_run_says_a_line_per_run_and_keeps_the_rows(bench_run, out):
    result = bench_run(method="horizon,paper")
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert len(lines) == 5 and "3 to go, about 0:0" in lines[0] and lines[-1] == f"complete: {out}"
    assert [(row["method"], row["seed"]) for row in runner.read_rows(out)] == [
        *(("horizon", 0), ("horizon", 1), ("paper", 0), ("paper", 1))
    ]


def test_run_again_runs_nothing(bench_run, out):
    bench_run()
    before = out.read_bytes()
    assert bench_run().stdout == f"complete: {out}\n"
    assert out.read_bytes() == before


def test_ctrl_c_keeps_what_is_finished(bench_run, out, monkeypatch):
    calls = []

    def interrupted(*arguments, run=runner.run):
        if calls:
            raise KeyboardInterrupt
        calls.append(1)
        return run(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(runner, "run", interrupted)
        result = bench_run()
    assert result.exit_code == 130
    assert "the same command goes on" in result.stderr
    assert [row["seed"] for row in runner.read_rows(out)] == [0]
    assert bench_run().exit_code == 0
    assert [row["seed"] for row in runner.read_rows(out)] == [0, 1]


@pytest.mark.parametrize(
    ("task", "method", "near"),
    [("digit-mlp", "horizon", "'digits-mlp'"), ("tiny", "horizon,cosin", "'cosine'"), ("tiny,tyni", "paper", "'tiny'")],
)
def test_an_unknown_name_gets_the_nearest_and_nothing_is_run(bench_run, out, task, method, near):
    assert failed(bench_run(task, method), "unknown", f"did you mean {near}?")
    assert not out.exists()


def test_missing_data_is_said_in_the_words_of_the_task(bench_run, monkeypatch):
    monkeypatch.setitem(TASKS, "poor", Task("poor", 10, (1e-3, 1.0), TINY.build, find_data=no_data))
    assert failed(bench_run("tiny,poor"), "data not found: apt-get install it")


@pytest.mark.parametrize(("method", "package"), [("schedule-free", "schedulefree"), ("prodigy", "prodigyopt")])
def test_a_missing_package_is_said_with_its_extra(bench_run, monkeypatch, method, package):
    monkeypatch.setitem(sys.modules, package, None)
    assert failed(bench_run(method=method), package, "autolrs[bench]")


def test_a_second_runner_on_one_file_is_told(bench_run, out):
    with open(f"{out}.lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert failed(bench_run(), "rows.jsonl is being written by another run")


@pytest.mark.parametrize("seeds", ["a", "-1", "1.5", ","])
def test_seeds_that_are_no_whole_numbers_are_wrong_usage(bench_run, seeds):
    assert bench_run(seeds=seeds).exit_code == 2


def test_seeds_of_tuning_are_refused(bench_run):
    assert failed(bench_run(seeds=str(runner.TUNE_SEEDS[0])), "tuned on")


def test_a_corrupt_file_is_not_added_to(bench_run, out):
    out.write_text("nonsense\n")
    assert failed(bench_run(), "rows.jsonl, line 1")
    assert out.read_text() == "nonsense\n"


def test_default_seeds_are_those_that_are_reported(cli, out):
    cli("bench", "run", "--task", "tiny", "--method", "horizon", "--out", out)
    assert tuple(row["seed"] for row in runner.read_rows(out)) == runner.REPORT_SEEDS


# table


@pytest.fixture
def rows(tmp_path):
    """Two files: a tuned cosine and ours, two seeds each."""
    files = tmp_path / "rivals.jsonl", tmp_path / "ours.jsonl"
    for file, method, lr in zip(files, ("cosine", "horizon"), (0.1, None), strict=True):
        made = [runner.run(TINY, METHODS[method], seed, Candidate(lr), "report") for seed in (0, 1)]
        file.write_text("".join(json.dumps(row) + "\n" for row in made))
    return files


def test_table_scores_several_files_together(cli, rows):
    result = cli("bench", "table", *rows)
    assert result.exit_code == 0, result.output
    assert "### tiny" in result.stdout and "### Over tasks" in result.stdout
    assert "| cosine | 2 |" not in result.stdout and result.stdout.count("| horizon |") == 2
    alone = cli("bench", "table", rows[1])
    assert "| - |" in alone.stdout  # nothing to compare with


def test_table_goes_to_a_file(cli, rows, tmp_path):
    printed = cli("bench", "table", *rows).stdout
    result = cli("bench", "table", *rows, "-o", tmp_path / "results.md")
    assert result.exit_code == 0 and "results.md" in result.stdout
    assert (tmp_path / "results.md").read_text(encoding="utf-8") == printed


@pytest.mark.parametrize("line", ["{", '{"task": "tiny"}'])
def test_a_corrupt_row_is_named_by_file_and_line(cli, rows, line):
    good = rows[1].read_text()
    rows[1].write_text(good + line + "\n")
    assert failed(cli("bench", "table", *rows), "ours.jsonl, line 3")


def test_a_torn_last_line_is_left_out(cli, rows):
    rows[1].write_text(rows[1].read_text()[:-30])
    assert "(1)" in cli("bench", "table", *rows).stdout


def test_a_file_that_is_not_there_or_holds_nothing_fails(cli, rows, tmp_path):
    assert failed(cli("bench", "table", rows[0], tmp_path / "none.jsonl"), "none.jsonl does not exist")
    (tmp_path / "empty.jsonl").touch()
    assert failed(cli("bench", "table", tmp_path / "empty.jsonl"), "nothing to score")


def test_the_same_run_in_two_files_is_refused(cli, rows):
    assert failed(cli("bench", "table", rows[0], rows[0]), "tiny cosine seed 0 is reported twice")


def test_table_by_name_and_format(cli, rows):
    result = cli("bench", "table", *rows, "--name", "variability", "--format", "csv")
    assert result.exit_code == 0 and result.stdout.startswith("table,method,what,by seed,")
    everything = cli("bench", "table", *rows, "--name", "all", "--format", "text").stdout
    assert "Variability: tiny" in everything and "Over tasks" in everything
    assert failed(cli("bench", "table", *rows, "--name", "headlin"), "unknown table", "'headline'")
    assert failed(cli("bench", "table", *rows, "--format", "xml"), "unknown format 'xml'")
    assert failed(cli("bench", "table", *rows, "--name", "tau-max"), "table tau-max is made of")


def test_table_draws_curves(cli, rows, tmp_path):
    pytest.importorskip("matplotlib")
    result = cli("bench", "table", *rows, "-o", tmp_path / "t.md", "--plots", tmp_path / "plots")
    assert result.exit_code == 0, result.output
    assert (tmp_path / "plots" / "tiny.png").stat().st_size > 10_000


# Profiles, series, data, smoke


def test_run_in_a_profile_keeps_its_rows_apart(cli, out):
    arguments = ("bench", "run", "--task", "tiny", "--method", "cosine", "--seeds", "0", "--out", out)
    assert cli(*arguments, "--profile", "smoke").exit_code == 0
    rows = runner.read_rows(out)
    assert {row["profile"] for row in rows} == {"smoke"} and len(rows) == 3
    assert failed(cli(*arguments, "--profile", "paper"), "must be one of smoke, cpu; got 'paper'")


def test_a_method_that_cannot_run_a_task_is_said(bench_run):
    assert failed(bench_run(method="hand-tuned"), "cannot be run on tiny", "no hand-tuned schedule")


def test_series_and_the_table_of_forecasters(cli, tmp_path):
    pytest.importorskip("statsmodels")
    file = tmp_path / "series.jsonl"
    result = cli("bench", "series", "--task", "tiny", "--out", file, "--steps", "80")
    assert result.exit_code == 0, result.output
    result = cli("bench", "table", file, "--name", "forecasters", "--format", "text")
    assert result.exit_code == 0, result.output
    for word in ("exponential (paper)", "Holt-Winters", "ARIMA", "SSA", "power law", "last value", "6 series"):
        assert word in result.stdout
    file.write_text("{}\n")
    assert failed(cli("bench", "table", file, "--name", "forecasters"), "series.jsonl, line 1")


def test_data_lists_what_is_here_and_what_must_be_got(cli, tmp_path, monkeypatch):
    monkeypatch.setenv("AUTOLRS_DATA", str(tmp_path))
    result = cli("bench", "data")
    assert result.exit_code == 0, result.output
    lines = {line.split()[0]: line for line in result.stdout.splitlines() if line.strip()}
    assert "autolrs bench data cifar10" in lines["cifar10"] and "by hand" in lines["imagenet"]
    assert "image-net.org" in result.stdout and "wmt14" in lines
    assert failed(cli("bench", "data", "cifar-1"), "did you mean 'cifar10'?")
    assert failed(cli("bench", "data", "wmt14"), "wmt14: data not found")


def test_smoke_runs_all_that_is_here_and_makes_every_table(cli, tmp_path, monkeypatch):
    pytest.importorskip("matplotlib")
    pytest.importorskip("statsmodels")
    from autolrs.cli import bench_smoke

    poor = Task("poor", 10, (1e-3, 1.0), TINY.build, find_data=no_data)
    for name in list(TASKS):
        monkeypatch.delitem(TASKS, name)
    monkeypatch.setitem(TASKS, "tiny", TINY)
    monkeypatch.setitem(TASKS, "poor", poor)
    for name in list(METHODS):
        if name not in ("horizon", "paper", "cosine", "prodigy", "hand-tuned"):
            monkeypatch.delitem(METHODS, name)
    monkeypatch.setattr(bench_smoke, "SMOKE_TASK", "tiny")
    monkeypatch.setattr(bench_smoke, "SERIES_STEPS", 80)
    monkeypatch.setitem(sys.modules, "prodigyopt", None)
    result = cli("bench", "smoke", "--out", tmp_path)
    assert result.exit_code == 0, result.output
    assert "left out: task poor: data not found" in result.stdout
    assert "left out: method prodigy needs prodigyopt" in result.stdout
    assert {row["method"] for row in runner.read_rows(tmp_path / "rows.jsonl")} == {"horizon", "paper", "cosine"}
    assert "### tiny (smoke)" in (tmp_path / "headline.md").read_text(encoding="utf-8")
    assert (tmp_path / "forecasters.md").exists() and list((tmp_path / "plots").glob("*.png"))
