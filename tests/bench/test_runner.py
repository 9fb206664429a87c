"""Tuning, going on, and what a results file survives."""

from __future__ import annotations

import fcntl
import json
import math
import os

import pytest

pytest.importorskip("torch")

from autolrs.bench import runner, tuning
from autolrs.bench.methods import METHODS, Method, Outcome
from autolrs.bench.tasks import TASKS, Task
from autolrs.bench.tasks._task import Bundle
from autolrs.bench.tuning import Candidate
from tiny_task import EXPLOSIVE, STEPS, TINY

GRID = [0.1 * 2.0**octave for octave in tuning.OCTAVES]  # about the middle of TINY's interval
COSINE, HORIZON = METHODS["cosine"], METHODS["horizon"]


@pytest.fixture(autouse=True)
def tiny(monkeypatch):
    monkeypatch.setitem(TASKS, "tiny", TINY)
    monkeypatch.setitem(TASKS, "explosive", EXPLOSIVE)


@pytest.fixture
def out(tmp_path):
    return tmp_path / "deep" / "rows.jsonl"


def complete(out, methods=("horizon",), seeds=(0, 1), tasks=("tiny",)):
    said = []
    runner.complete(out, tasks, methods, seeds, said.append)
    return said


# One run


def test_a_row_is_plain_and_holds_what_scoring_needs():
    row = runner.run(TINY, COSINE, 0, Candidate(0.1), "report")
    assert json.loads(json.dumps(row, allow_nan=False)) == row
    assert (row["task"], row["method"], row["phase"], row["seed"]) == ("tiny", "cosine", "report", 0)
    assert (row["lr"], row["peak"], row["total_steps"], row["raw_steps"]) == (0.1, 0.1, STEPS, STEPS)
    assert row["curve"][-1] == [STEPS, row["test"]]
    assert set(row["versions"]) == {"autolrs", "torch", "python"}


def test_rows_have_the_columns_that_they_always_had_and_then_the_later_ones():
    assert list(runner.run(TINY, COSINE, 0, Candidate(0.1), "tune")) == [
        *("task", "method", "phase", "seed", "lr", "peak", "test", "validation", "total_steps", "raw_steps"),
        *("evaluations", "seconds", "curve"),
        *(
            "profile",
            "options",
            "settings",
            "accuracy",
            "accuracy_curve",
            "lrs",
            "losses",
            "further",
        ),  # later than the rest
        *("versions", "commit"),
    ]


def test_rows_from_before_there_were_profiles_and_options_can_be_read_and_are_not_run_again(out):
    complete(out, ["cosine"], [0])
    new = {"profile", "options", "settings", "accuracy", "accuracy_curve", "lrs", "losses", "further"}
    old = [{name: value for name, value in row.items() if name not in new} for row in runner.read_rows(out)]
    out.write_text("".join(json.dumps(row) + "\n" for row in old))
    assert complete(out, ["cosine"], [0]) == []


def test_the_same_seed_gives_the_same_row():
    first, second = (runner.run(TINY, HORIZON, 3, Candidate(), "report") for _ in range(2))
    assert {**first, "seconds": 0} == {**second, "seconds": 0}
    assert runner.run(TINY, HORIZON, 4, Candidate(), "report")["test"] != first["test"]


def test_a_tuning_run_measures_no_curve():
    assert runner.run(TINY, COSINE, 100, Candidate(0.1), "tune")["curve"] == []


def test_a_diverged_run_is_a_row_with_none(out):
    complete(out, ["horizon"], [0], ["explosive"])
    (row,) = runner.read_rows(out)
    assert row["test"] is None and row["validation"] is None
    assert row["curve"] and all(loss is None for _, loss in row["curve"])


@pytest.mark.parametrize(("method", "lr"), [(COSINE, None), (HORIZON, 0.1)])
def test_tuned_methods_need_an_lr_and_the_others_take_none(method, lr):
    with pytest.raises(ValueError, match=f"for {method.name}, got {lr}"):
        runner.run(TINY, method, 0, Candidate(lr), "report")


# Tuning


def tune(loss_of, method=COSINE, task=TINY):
    """Tune to the end with losses from a function of the LR; (best, LRs in the order of trying)."""
    rows, tried = [], []
    while True:
        best, following = tuning.choose(rows, task, method)
        if following is None:
            return best, tried
        assert len(tried) < 50
        tried.append(following)
        row = {"task": "tiny", "method": method.name, "phase": "tune", "lr": following.lr, "profile": task.profile}
        row["options"] = dict(following.options)
        rows.append({**row, "validation": loss_of(following.lr, **row["options"])})


def tuned(loss_of):
    best, tried = tune(loss_of)
    return best.lr, [one.lr for one in tried]


def distance_to(best):
    return lambda lr: abs(math.log2(lr / best))


def test_a_best_inside_the_grid_needs_no_more():
    best, tried = tuned(distance_to(GRID[2]))
    assert (best, tried) == (GRID[2], GRID)


@pytest.mark.parametrize(("target", "beyond"), [(GRID[0] / 4, [1 / 2, 1 / 4, 1 / 8]), (GRID[-1] * 2, [2, 4])])
def test_the_grid_is_extended_until_the_best_is_no_edge(target, beyond):
    best, tried = tuned(distance_to(target))
    assert best == target
    edge = GRID[0] if target < GRID[0] else GRID[-1]
    assert tried == [*GRID, *(edge * factor for factor in beyond)]


def test_extension_ends_somewhere():
    best, tried = tuned(lambda lr: -lr)
    assert len(tried) == len(GRID) + tuning.EXTENSIONS and best == max(tried)


def test_diverged_candidates_lose_and_if_all_diverge_smaller_ones_are_tried():
    assert tuned(lambda lr: None if lr > GRID[1] else distance_to(GRID[1])(lr))[0] == GRID[1]
    best, tried = tuned(lambda lr: None if lr >= GRID[0] / 2 else 1.0 / lr)
    assert best == GRID[0] / 4 and min(tried) == GRID[0] / 8


def test_every_candidate_is_tried_on_every_tuning_seed(monkeypatch):
    monkeypatch.setattr(tuning, "TUNE_SEEDS", (100, 101))
    _, tried = tuned(distance_to(GRID[-1]))
    assert sorted(tried) == sorted(2 * [*GRID, GRID[-1] * 2])


def test_rows_of_others_do_not_tune():
    row = {"task": "tiny", "method": "cosine", "phase": "tune", "lr": GRID[0], "validation": 1.0}
    for other in ({"method": "wsd"}, {"task": "else"}, {"phase": "report"}, {"profile": "smoke"}):
        assert tuning.choose([{**row, **other}], TINY, COSINE) == (None, Candidate(GRID[0]))
    assert tuning.choose([row], TINY, COSINE) == (None, Candidate(GRID[1]))


def test_a_method_that_needs_no_tuning_is_complete_at_once():
    assert tuning.choose([], TINY, HORIZON) == (Candidate(), None)


def test_options_are_tried_with_every_lr_and_extended_at_the_best_ones_only():
    best, tried = tune(lambda lr, cycles: distance_to(GRID[-1] * 2)(lr) + abs(cycles - 3), METHODS["sgdr"])
    assert best == Candidate(GRID[-1] * 2, (("cycles", 3),))
    assert tried[: 3 * len(GRID)] == [Candidate(lr, (("cycles", n),)) for n in (2, 3, 4) for lr in GRID]
    assert tried[3 * len(GRID) :] == [Candidate(GRID[-1] * factor, (("cycles", 3),)) for factor in (2, 4)]


def test_a_grid_of_ones_own_is_tried_whole_and_not_extended():
    best, tried = tune(lambda lr, hypergradient_lr: -lr - hypergradient_lr, METHODS["hypergradient"])
    assert best == Candidate(0.1, (("hypergradient_lr", 0.1),))
    assert len(tried) == len(set(tried)) == 36  # the paper's table


def test_a_method_that_finds_its_lr_may_have_options():
    best, tried = tune(lambda lr, cycles: abs(cycles - 4), METHODS["clr-triangular2"])
    assert best == Candidate(None, (("cycles", 4),)) and len(tried) == 3


def test_a_smoke_test_tries_two_values_of_each_and_goes_no_further():
    _, tried = tune(lambda lr, cycles: -lr, METHODS["sgdr"], TINY.at("smoke"))
    assert [(one.lr, dict(one.options)["cycles"]) for one in tried] == [(lr, n) for n in (3, 4) for lr in GRID[2:4]]


# Whole results files


def test_a_tuned_method_is_tuned_on_other_seeds_and_reported_at_its_best_lr(out):
    complete(out, ["cosine"])
    rows = runner.read_rows(out)
    tuned = [row for row in rows if row["phase"] == "tune"]
    assert [row["lr"] for row in tuned[: len(GRID)]] == GRID
    assert {row["seed"] for row in tuned} == set(runner.TUNE_SEEDS)
    best = min(tuned, key=lambda row: math.inf if row["validation"] is None else row["validation"])["lr"]
    assert [(row["seed"], row["lr"]) for row in rows if row["phase"] == "report"] == [(0, best), (1, best)]


def test_what_is_there_is_not_run_again(out):
    complete(out, ["horizon", "cosine"])
    before = out.read_bytes()
    assert complete(out, ["horizon", "cosine"]) == []
    assert out.read_bytes() == before
    assert len(complete(out, ["cosine"], [0, 1, 2])) == 1
    assert out.read_bytes().startswith(before)


class Interrupted:
    """Stops `runner.run` before the given run, as Ctrl-C would."""

    def __init__(self, at, run=runner.run):
        self.left, self.run = at, run

    def __call__(self, *arguments):
        self.left -= 1
        if self.left < 0:
            raise KeyboardInterrupt
        return self.run(*arguments)


@pytest.mark.parametrize("at", [0, 1, 4, 7])
def test_an_interrupted_benchmark_goes_on_to_the_same_rows(out, tmp_path, monkeypatch, at):
    whole = tmp_path / "whole.jsonl"
    complete(whole, ["cosine", "horizon"])
    with monkeypatch.context() as patch:
        patch.setattr(runner, "run", Interrupted(at))
        with pytest.raises(KeyboardInterrupt):
            complete(out, ["cosine", "horizon"])
    assert len(runner.read_rows(out)) == at
    assert list(out.parent.glob("*.lock")) == []
    complete(out, ["cosine", "horizon"])
    first, second = ([{**row, "seconds": 0} for row in runner.read_rows(path)] for path in (whole, out))
    assert first == second


def test_a_torn_last_line_is_left_out_and_does_not_spoil_the_next(out):
    complete(out, seeds=[0, 1])
    data = out.read_bytes()
    out.write_bytes(data[:-40])
    assert [row["seed"] for row in runner.read_rows(out)] == [0]
    complete(out, seeds=[0, 1])
    assert [row["seed"] for row in runner.read_rows(out)] == [0, 1]
    assert out.read_bytes().startswith(data[: data.index(b"\n") + 1])


def test_a_last_row_that_only_lacks_its_line_end_is_kept(out):
    complete(out, seeds=[0])
    out.write_bytes(out.read_bytes().rstrip(b"\n"))
    complete(out, seeds=[0, 1])
    assert [row["seed"] for row in runner.read_rows(out)] == [0, 1]


@pytest.mark.parametrize(
    ("line", "what"),
    [
        (b'{"task": "ti', "not a row of JSON"),
        (b"\xff\xfe", "not a row of JSON"),
        (b"[1, 2]", "got list"),
        (b"{}", "`task` is missing"),
    ],
)
def test_a_corrupt_line_is_named_and_nothing_is_added_after_it(out, line, what):
    complete(out, seeds=[0])
    spoiled = out.read_bytes() + line + b"\n" + out.read_bytes()
    out.write_bytes(spoiled)
    with pytest.raises(ValueError, match=rf"rows\.jsonl, line 2: .*{what}"):
        complete(out, seeds=[1])
    assert out.read_bytes() == spoiled


@pytest.mark.parametrize("change", [{"test": "low"}, {"total_steps": None}, {"curve": 3}])
def test_a_row_with_a_value_of_the_wrong_kind_is_named(out, change):
    complete(out, seeds=[0])
    (row,) = runner.read_rows(out)
    out.write_text(json.dumps({**row, **change}) + "\n")
    with pytest.raises(ValueError, match=rf"line 1: not a benchmark row \(`{next(iter(change))}` is"):
        runner.read_rows(out)


def test_no_file_is_no_rows_and_blank_lines_are_none(tmp_path):
    assert runner.read_rows(tmp_path / "none.jsonl") == []
    (tmp_path / "blank.jsonl").write_text("\n\n")
    assert runner.read_rows(tmp_path / "blank.jsonl") == []


# What is found at the start


def test_seeds_of_tuning_are_not_reported(out):
    with pytest.raises(ValueError, match="tuned on"):
        complete(out, seeds=[0, runner.TUNE_SEEDS[0]])


def test_missing_data_of_a_later_task_is_found_before_the_first_run(out, monkeypatch):
    def missing():
        raise FileNotFoundError("no data: get some")

    monkeypatch.setitem(TASKS, "poor", Task("poor", 10, (1e-3, 1.0), TINY.build, find_data=missing))
    with pytest.raises(FileNotFoundError, match="get some"):
        complete(out, tasks=["tiny", "poor"])
    assert not out.exists()


def test_a_missing_package_of_a_later_method_is_found_before_the_first_run(out, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "prodigyopt", None)
    with pytest.raises(ImportError, match=r"prodigy needs prodigyopt: pip install 'autolrs\[bench\]'"):
        complete(out, ["horizon", "prodigy"])
    assert not out.exists()


# Two runners


def test_a_second_runner_is_told_and_adds_nothing(out):
    complete(out, seeds=[0])
    before = out.read_bytes()
    lock = out.with_name("rows.jsonl.lock")
    with open(lock, "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.write("4321")
        file.flush()
        with pytest.raises(RuntimeError, match=r"rows\.jsonl is being written by another run \(process 4321\)"):
            complete(out)
        assert lock.read_text() == "4321"
    assert out.read_bytes() == before


def test_the_lock_is_held_while_running_and_gone_afterwards(out, monkeypatch):
    lock = out.with_name("rows.jsonl.lock")

    def train(bundle: Bundle, run) -> Outcome:
        assert lock.read_text() == str(os.getpid())
        with pytest.raises(runner.BusyError):
            complete(out)
        return Outcome(run.task.total_steps, 0, None)

    monkeypatch.setitem(METHODS, "idle", Method("idle", train))
    complete(out, ["idle"], [0])
    assert not lock.exists()


def test_a_lock_left_by_a_killed_process_does_not_matter(out):
    out.parent.mkdir()
    out.with_name("rows.jsonl.lock").write_text("99999")
    assert len(complete(out)) == 2


# Progress


def test_a_line_per_run_with_what_is_left(out):
    said = complete(out, ["horizon"], [0, 1, 2])
    assert [line.split("; ")[1].split(",")[0] for line in said] == ["2 to go", "1 to go", "done"]
    assert said[0].startswith("tiny horizon report seed 0: test 0.")
    assert " about 0:0" in said[0]
    (line,) = complete(out, ["horizon"], [0], ["explosive"])
    assert "diverged" in line


def fake(task="tiny", method="horizon", phase="report", seed=0, lr=None, seconds=2.0, validation=1.0):
    values = {"task": task, "method": method, "phase": phase, "seed": seed, "lr": lr, "validation": validation}
    return {**values, "seconds": seconds, "total_steps": TASKS[task].total_steps}


def test_left_counts_runs_and_times_them_by_the_same_task():
    assert runner.left([], ["tiny"], ["horizon"], [0, 1]) == (2, None)
    rows = [fake(), fake("explosive", seconds=10.0)]
    assert runner.left(rows, ["tiny"], ["horizon", "paper"], [0, 1]) == (3, pytest.approx(6.0))
    assert runner.left(rows[:1], ["explosive"], ["horizon"], [0]) == (1, pytest.approx(2.0))  # as other tasks go


def test_left_counts_tuning_until_it_is_complete():
    rows = [fake(method="cosine", phase="tune", lr=lr, validation=-lr) for lr in GRID]
    assert runner.left(rows[:2], ["tiny"], ["cosine"], [0]).runs == 5
    assert runner.left(rows, ["tiny"], ["cosine"], [0]).runs == 2  # the best is at the edge: one more at least
    rows[2]["validation"] = -9.0
    assert runner.left(rows, ["tiny"], ["cosine"], [0]).runs == 1
