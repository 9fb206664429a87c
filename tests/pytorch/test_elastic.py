"""Runs that are killed, preempted or damaged, and go on: on the same ranks to the same bits, on others at all."""

import gc
import os
import pickle
import shutil
import signal
import subprocess
import threading

import elastic_worker
import pytest
import torch
from nets import PAPER, auto_for, make, same, tensors, train
from ranks import command, environment, launch

import autolrs
from autolrs.core.types import Noted
from autolrs.pytorch import checkpoint, preempt
from autolrs.run import journal

posix = pytest.mark.skipif(os.name != "posix", reason="needs POSIX signals")


def fresh(tmp_path_factory, name, *runs):
    folder = tmp_path_factory.mktemp(name)
    for run in runs or ("run",):
        (folder / run).mkdir()
    return folder


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    return launch("elastic_worker.py", fresh(tmp_path_factory, "undisturbed"))


@posix
@pytest.mark.distributed
@pytest.mark.slow
@pytest.mark.timeout(290)
def test_ranks_killed_in_a_probe_a_checkpoint_and_a_commit_end_with_the_same_bits(undisturbed, tmp_path_factory):
    folder = fresh(tmp_path_factory, "killed")
    ranks = launch("elastic_worker.py", folder, "kill:7", "save:2", "kill:60", restarts=3)
    for rank, expected in zip(ranks, undisturbed, strict=True):
        assert rank["attempt"] == 3
        assert rank["run"]["begun"] == 35  # after the first commit: the second point was never whole
        assert rank["run"]["schedule"] == expected["run"]["schedule"]
        assert rank["run"]["weights"] == expected["run"]["weights"]


@posix
@pytest.mark.distributed
@pytest.mark.slow
@pytest.mark.timeout(290)
def test_preempted_ranks_write_a_point_at_one_step_and_go_on_in_any_number(undisturbed, tmp_path_factory):
    folder = fresh(tmp_path_factory, "preempted")
    args = command("elastic_worker.py", folder, "term:41")
    ended = subprocess.run(args, env=environment(), capture_output=True, text=True, timeout=200)
    assert ended.returncode != 0 and "SIGTERM" in ended.stderr
    for path in (folder / "run-of-two", folder / "alone"):
        shutil.copytree(folder / "run", path)
    shutil.rmtree(folder / "run")

    elastic_worker.run(folder / "run-of-one", 0, stop=50)
    gc.collect()  # as long as the run lives here, this process holds it
    first, second = launch("elastic_worker.py", folder)
    for rank, expected in zip((first, second), undisturbed, strict=True):
        assert rank["run-of-two"]["begun"] == 46  # the second rank heard after step 44
        assert rank["run-of-two"]["schedule"] == expected["run"]["schedule"]
        assert rank["run-of-two"]["weights"] == expected["run"]["weights"]
    # One process before, two now: the same model and schedule on both, begun where the one had its point.
    one, other = first["run-of-one"], second["run-of-one"]
    assert one["begun"] == other["begun"] == 35 and one["schedule"] == other["schedule"]
    assert one["weights"][:4] + one["weights"][7:] == other["weights"][:4] + other["weights"][7:]  # but BatchNorm's own
    assert noted(folder / "run-of-one", "going on with 2 ranks instead of 1")
    # And the other way round, from the middle of a probe, which begins again.
    found = elastic_worker.run(folder / "alone", 0)
    assert found["begun"] == 45 and found["schedule"]["total_steps"] == 60
    assert noted(folder / "alone", "going on with 1 ranks instead of 2")


def noted(run_dir, text):
    return any(isinstance(event, Noted) and text in event.message for event in journal.read(run_dir))


@posix
def test_sigterm_writes_a_point_after_the_step_and_then_goes_where_it_would_have_gone(tmp_path):
    heard = []
    before = signal.signal(signal.SIGTERM, lambda *_: heard.append(1))
    try:
        model, optimizer, data = make()
        auto = auto_for(model, optimizer, run_dir=tmp_path)
        train(auto, model, optimizer, data, stop=43)
        os.kill(os.getpid(), signal.SIGTERM)
        assert heard == []
        train(auto, model, optimizer, data, stop=1)
        assert heard == [1] and noted(tmp_path, "SIGTERM: a durable point after 44 steps")
        train(auto, model, optimizer, data, stop=2)
        again, optimizer, data = make()
        resumed = autolrs.resume(tmp_path, again, optimizer)
        assert resumed.raw_steps == 44
        train(resumed, again, optimizer, data)
        model, optimizer, data = make()
        expected = auto_for(model, optimizer)
        train(expected, model, optimizer, data)
        assert same(tensors(again), tensors(model)) and resumed.schedule == expected.schedule
        del auto
        gc.collect()
        os.kill(os.getpid(), signal.SIGTERM)  # no run is under way: it does not wait for a step
        assert heard == [1, 1]
    finally:
        signal.signal(signal.SIGTERM, before)


@posix
def test_sigterm_is_passed_on_where_no_step_comes(tmp_path, monkeypatch):
    heard = threading.Event()
    before = signal.signal(signal.SIGTERM, lambda *_: heard.set())
    monkeypatch.setattr(preempt, "_PATIENCE", 0.05)
    try:
        model, optimizer, _ = make()
        auto = auto_for(model, optimizer, run_dir=tmp_path)
        os.kill(os.getpid(), signal.SIGTERM)
        assert heard.wait(10) and not auto.done
    finally:
        signal.signal(signal.SIGTERM, before)


@pytest.mark.parametrize("damage", ["cut", "garbage", "malicious"])
def test_a_damaged_checkpoint_falls_back_to_the_one_before(tmp_path, damage):
    model, optimizer, data = make()
    auto = auto_for(model, optimizer, run_dir=tmp_path, max_stage_steps=20)
    train(auto, model, optimizer, data, stop=80)  # two points, after 35 and 70 steps
    path = tmp_path / "checkpoint.pt"
    content = {"cut": path.read_bytes()[:900], "garbage": b"x" * 99, "malicious": malicious(tmp_path / "executed")}
    path.write_bytes(content[damage])
    again, optimizer, data = make()
    with pytest.warns(RuntimeWarning, match=r"not a whole checkpoint.*going on from checkpoint\.previous\.pt"):
        resumed = autolrs.resume(tmp_path, again, optimizer)
    assert resumed.raw_steps == 35 and not (tmp_path / "executed").exists()
    train(resumed, again, optimizer, data)
    expected, optimizer, data = make()
    train(auto_for(expected, optimizer, max_stage_steps=20), expected, optimizer, data)
    assert same(tensors(again), tensors(expected))
    path.write_bytes(content[damage])
    (tmp_path / checkpoint.PREVIOUS).write_bytes(content[damage])
    with pytest.raises(ValueError, match=r"checkpoint\.pt is not a whole.*checkpoint\.previous\.pt is not a whole"):
        autolrs.resume(tmp_path, *make()[:2])


def malicious(trace):
    class Bad:
        def __reduce__(self):
            return os.mkdir, (str(trace),)

    return pickle.dumps(Bad(), protocol=2)  # torch's own, so that it is read at all


def test_a_folder_without_a_run_gets_a_new_one_if_that_is_allowed(tmp_path):
    def begin(**settings):
        model, optimizer, _ = make()
        return autolrs.resume(tmp_path / "run", model, optimizer, missing_ok=True, **{**PAPER, **settings})

    auto = begin()
    assert auto.raw_steps == 0 and auto.settings.n_probes == 3
    with pytest.raises(ValueError, match=r"`n_probes` is 3 in .* and 5 here"):
        begin(n_probes=5)
    with pytest.raises(ValueError, match=r"`strategy` is 'paper' in .* and 'horizon' here"):
        begin(strategy="horizon")
    lines = (tmp_path / "run" / journal.NAME).read_bytes().split(b"\n")
    for left in (b"", lines[0][:5], lines[0] + b"\n", lines[0] + b"\n" + lines[1][:9]):  # killed in the first moment
        (tmp_path / "run" / journal.NAME).write_bytes(left)
        assert begin().raw_steps == 0
        assert len(journal.read(tmp_path / "run")) > 1
    model, optimizer, _ = make()
    with pytest.raises(journal.JournalError, match="holds no run"):
        autolrs.resume(tmp_path / "other", model, optimizer, **PAPER)


def test_objects_to_track_are_tracked_from_the_first_start_on(tmp_path):
    model, optimizer, _ = make()
    other = torch.nn.Linear(2, 2)
    auto = autolrs.resume(tmp_path, model, optimizer, missing_ok=True, track={"other": other}, **PAPER)
    assert auto.host.tracked == {"other": other}
