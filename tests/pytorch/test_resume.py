"""Going on: from the user's own checkpoint at any step, and from a run folder after a kill."""

import errno
import io
import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
import torch
from nets import PAPER, Augmented, X, Y, auto_for, make, net, same, shuffled, tensors, train, train_step
from torch.utils.data import DataLoader, TensorDataset
from torchdata.stateful_dataloader import StatefulDataLoader

import autolrs
from autolrs.core import engine
from autolrs.core.types import Resumed
from autolrs.pytorch import checkpoint
from autolrs.run import journal
from autolrs.run.journal import JournalError

# torchdata's own call when a StatefulDataLoader is made
pytestmark = pytest.mark.filterwarnings("ignore:'set_vital' is deprecated:UserWarning")

DATA = TensorDataset(X, Y)
LOADERS = {
    "shuffled": shuffled,
    "own generator": lambda: shuffled(generator=torch.Generator().manual_seed(5)),
    "augmented": lambda: shuffled(Augmented(), batch_size=7),
    "list": lambda: [(X[i : i + 8], Y[i : i + 8]) for i in range(0, 48, 8)],
    "stateful": lambda: StatefulDataLoader(DATA, batch_size=8, shuffle=True),
    "stateful, own generator": lambda: StatefulDataLoader(
        DATA, batch_size=8, shuffle=True, generator=torch.Generator().manual_seed(5)
    ),
    "stateful, augmented": lambda: StatefulDataLoader(Augmented(), batch_size=8, shuffle=True),
}


def fresh(loader, seed=0):
    model = net(seed)
    return model, torch.optim.Adam(model.parameters(), lr=0.01), loader()


def saved(auto):
    """Through a file, as `weights_only` reads it."""
    file = io.BytesIO()
    torch.save(auto.state_dict(), file)
    file.seek(0)
    return torch.load(file, weights_only=True)


def whole_run(loader, **settings):
    model, optimizer, data = fresh(loader)
    auto = auto_for(model, optimizer, **settings)
    train(auto, model, optimizer, data)
    return auto.schedule, tensors(model), auto.raw_steps


def run_in_pieces(loader, stops, **settings):
    """Stopped after each of `stops` raw steps; every piece begins with new objects of another seed."""
    model, optimizer, data = fresh(loader)
    auto = auto_for(model, optimizer, **settings)
    for stop in stops:
        train(auto, model, optimizer, data, stop=stop - auto.raw_steps)
        assert auto.raw_steps == stop
        state = saved(auto)
        auto._feed = auto.session.stream = None  # lets workers go at once
        model, optimizer, data = fresh(loader, seed=stop)
        auto = auto_for(model, optimizer, **settings)
        auto.load_state_dict(state)
        assert auto.raw_steps == stop
    train(auto, model, optimizer, data)
    return auto.schedule, tensors(model), auto.raw_steps


REPLAYS = {"off": {}, "on": {"replay": True}, "kept": {"replay": True, "keep_winner": True}}


@pytest.mark.parametrize("replay", REPLAYS)
@pytest.mark.parametrize("name", LOADERS)
def test_a_run_in_pieces_is_the_whole_run(name, replay):
    expected = whole_run(LOADERS[name], **REPLAYS[replay])
    # In the first probe, in a later one, in the commit, at their ends, twice in the last stage.
    for stops in ((1, 7), (5, 14, 22), (35, 36, 52)):
        found = run_in_pieces(LOADERS[name], stops, **REPLAYS[replay])
        assert found[0] == expected[0], stops
        assert same(found[1], expected[1]), stops
        assert found[2] == expected[2]


@pytest.mark.parametrize("kind", [DataLoader, StatefulDataLoader])
def test_two_workers_go_on(kind):
    def loader():
        return kind(DATA, batch_size=8, shuffle=True, num_workers=2)

    settings = {"total_steps": 20, "max_stage_steps": 20, "n_probes": 2, "replay": True}
    expected = whole_run(loader, **settings)
    found = run_in_pieces(loader, (8, 17), **settings)
    assert found[0] == expected[0] and same(found[1], expected[1])


@pytest.mark.parametrize("replay", REPLAYS)
def test_a_run_with_range_test_warm_up_and_validation_goes_on(replay):
    def run(stops):
        model, optimizer, data = fresh(shuffled)
        settings = {"lr": "auto", "range_steps": 30, "warmup_steps": 4, "eval_every": 2, "max_stage_steps": 20}
        settings |= REPLAYS[replay]

        def make_auto(model, optimizer):
            return auto_for(model, optimizer, evaluate=lambda: train_loss(model), **settings)

        auto = make_auto(model, optimizer)
        for stop in stops:
            train(auto, model, optimizer, data, stop=stop - auto.raw_steps)
            state = saved(auto)
            model, optimizer, data = fresh(shuffled, seed=stop)
            auto = make_auto(model, optimizer)
            auto.load_state_dict(state)
        train(auto, model, optimizer, data)
        return auto.schedule, tensors(model)

    expected = run(())
    # The range test read more batches than warm-up and first stage take: some of its cache is left over.
    for stops in ((9, 31), (40, 47), (60, 81)):
        found = run(stops)
        assert found[0] == expected[0] and same(found[1], expected[1]), stops


def train_loss(model):
    with torch.no_grad():
        return torch.nn.functional.cross_entropy(model(X), Y)


def test_a_stage_shorter_than_the_range_test_goes_on_from_its_leftover_batches():
    settings = {"lr": "auto", "range_steps": 60, "replay": True}
    expected = whole_run(shuffled, **settings)
    for stop in (expected[2] - 110, expected[2] - 80, expected[2] - 60, expected[2] - 10):
        found = run_in_pieces(shuffled, (stop,), **settings)
        assert found[0] == expected[0] and same(found[1], expected[1]), stop


def test_long_runs_without_replay_read_only_the_epoch_under_way_again():
    drawn = []

    class Counting(TensorDataset):
        def __getitem__(self, i):
            drawn.append(i)
            return super().__getitem__(i)

    def loader():
        return shuffled(Counting(X, Y))

    model, optimizer, data = fresh(loader)
    auto = auto_for(model, optimizer)
    train(auto, model, optimizer, data, stop=100)
    state = auto.state_dict()
    model, optimizer, data = fresh(loader)
    resumed = auto_for(model, optimizer)
    resumed.load_state_dict(state)
    drawn.clear()
    next(resumed.batches(data))
    assert len(drawn) <= 48


def test_a_state_that_was_loaded_and_not_used_yet_can_be_saved_again():
    expected = whole_run(shuffled)
    model, optimizer, data = fresh(shuffled)
    auto = auto_for(model, optimizer)
    train(auto, model, optimizer, data, stop=23)
    state = saved(auto)
    for seed in (1, 2):
        model, optimizer, data = fresh(shuffled, seed)
        auto = auto_for(model, optimizer)
        auto.load_state_dict(state)
        state = saved(auto)
    train(auto, model, optimizer, data)
    assert auto.schedule == expected[0] and same(tensors(model), expected[1])


def test_saving_changes_nothing():
    expected = whole_run(LOADERS["stateful"], replay=True)
    model, optimizer, data = fresh(LOADERS["stateful"])
    auto = auto_for(model, optimizer, replay=True)
    auto.state_dict()
    for batch in auto.batches(data):
        auto.step(train_step(model, optimizer, batch))
        auto.state_dict()
    auto.state_dict()
    assert auto.schedule == expected[0] and same(tensors(model), expected[1])


def test_a_state_can_go_back_to_in_the_same_object():
    model, optimizer, data = fresh(shuffled)
    auto = auto_for(model, optimizer, replay=True)
    train(auto, model, optimizer, data, stop=23)
    state = auto.state_dict()
    ends = []
    for _ in range(2):
        auto.load_state_dict(state)
        train(auto, model, optimizer, data)
        ends.append((auto.schedule, tensors(model)))
    assert ends[0][0] == ends[1][0] and same(ends[0][1], ends[1][1])


def test_a_finished_run_can_be_loaded():
    model, optimizer, data = fresh(LOADERS["stateful"])
    auto = auto_for(model, optimizer, replay=True)
    train(auto, model, optimizer, data)
    state, end = saved(auto), tensors(model)
    model, optimizer, data = fresh(LOADERS["stateful"], seed=9)
    again = auto_for(model, optimizer, replay=True)
    again.load_state_dict(state)
    assert again.done and again.schedule == auto.schedule and same(tensors(model), end)
    assert list(again.batches(data)) == []
    assert again.lr == auto.lr and (again.committed_steps, again.raw_steps) == (60, 105)


def test_users_own_state_dicts_may_be_loaded_before_or_after():
    expected = whole_run(shuffled)
    for order in ("before", "after"):
        model, optimizer, data = fresh(shuffled)
        auto = auto_for(model, optimizer)
        train(auto, model, optimizer, data, stop=23)
        state = (model.state_dict(), optimizer.state_dict(), saved(auto))
        model, optimizer, data = fresh(shuffled, seed=3)
        auto = auto_for(model, optimizer)
        if order == "after":
            auto.load_state_dict(state[2])
        model.load_state_dict(state[0])
        optimizer.load_state_dict(state[1])
        if order == "before":
            auto.load_state_dict(state[2])
        train(auto, model, optimizer, data)
        assert auto.schedule == expected[0] and same(tensors(model), expected[1]), order


# Refusals


def some_state(**settings):
    model, optimizer, data = make()
    auto = auto_for(model, optimizer, **settings)
    train(auto, model, optimizer, data, stop=8)
    return auto.state_dict()


def refuses(message, model=None, optimizer=None, track=None, **settings):
    model = net() if model is None else model
    optimizer = optimizer or torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    auto = auto_for(model, optimizer, **settings)
    auto.track(**(track or {}))
    before = tensors(model)
    with pytest.raises(ValueError, match=message):
        auto.load_state_dict(some_state())
    assert same(tensors(model), before)


def test_a_state_of_something_else_is_refused_and_the_difference_named():
    model = net()
    refuses(r"`n_probes` is 3 in the checkpoint and 4 here", n_probes=4)
    refuses(r"the checkpoint was not given `evaluate`", evaluate=lambda: 1.0)
    refuses(r"another model: only the model has '5.weight'", torch.nn.Sequential(*net(), torch.nn.Linear(3, 3)))
    refuses(r"another model: only the checkpoint has '4.weight'", torch.nn.Sequential(*net()[:4]))
    refuses(
        r"another model: '4.weight' is \(3, 8\) of torch.float32",
        torch.nn.Sequential(*net()[:4], torch.nn.Linear(8, 4)),
    )
    refuses(r"another model: '0.weight' is .* of torch.float32 there and .* of torch.float64 here", net().double())
    refuses(
        r"another optimizer: SGD with 1 groups there, Adam with 1", model, torch.optim.Adam(model.parameters(), lr=0.01)
    )
    refuses(r"other tracked objects: \[\] there, \['ema'\] here", track={"ema": net(1)})


def test_what_is_no_state_of_ours_is_refused():
    model, optimizer, _ = make()
    auto = auto_for(model, optimizer)
    for state in ({}, {"autolrs": 2}):
        with pytest.raises(ValueError, match="not a state dict of AutoLRS, or of a newer one"):
            auto.load_state_dict(state)


def test_a_stateful_loader_refuses_the_position_of_a_plain_one():
    model, optimizer, _ = make()
    auto = auto_for(model, optimizer)
    auto.load_state_dict(some_state())
    with pytest.raises(ValueError, match="the checkpoint is of another loader"):
        next(auto.batches(StatefulDataLoader(DATA, batch_size=8)))


# Run folders


def killed_at(run_dir, stop, **settings):
    model, optimizer, data = make()
    auto = auto_for(model, optimizer, run_dir=run_dir, **settings)
    train(auto, model, optimizer, data, stop=stop)


@pytest.mark.parametrize("replay", REPLAYS)
@pytest.mark.parametrize("stop", [1, 15, 34, 35, 36, 50, 104, 105])
def test_resume_after_a_kill_at_any_point(tmp_path, stop, replay):
    settings = REPLAYS[replay]
    model, optimizer, data = make()
    expected = auto_for(model, optimizer, **settings)
    train(expected, model, optimizer, data)
    killed_at(tmp_path / "run", stop, **settings)
    again, optimizer, data = make()
    auto = autolrs.resume(tmp_path / "run", again, optimizer, **settings)
    train(auto, again, optimizer, data)
    assert auto.schedule == expected.schedule
    assert same(tensors(again), tensors(model))
    assert auto.committed_steps == 60 and auto.done
    events = journal.read(tmp_path / "run")
    assert any(isinstance(event, Resumed) for event in events)
    assert engine.fold(events).schedule == expected.schedule
    assert autolrs.Schedule.load(tmp_path / "run" / "schedule.json") == expected.schedule


def test_resume_again_and_again(tmp_path):
    model, optimizer, data = make()
    expected = auto_for(model, optimizer)
    train(expected, model, optimizer, data)
    killed_at(tmp_path, 9)
    for stop in (20, 36, 50, 69, 70, None):
        again, optimizer, data = make()
        auto = autolrs.resume(tmp_path, again, optimizer)
        train(auto, again, optimizer, data, stop)
    assert auto.done and auto.schedule == expected.schedule
    assert same(tensors(again), tensors(model))


def test_resume_restores_tracked_objects(tmp_path):
    def objects():
        model, optimizer, data = make()
        ema = torch.optim.swa_utils.AveragedModel(model, use_buffers=True)
        return model, optimizer, data, ema, torch.amp.GradScaler("cpu", init_scale=4.0)

    def run(auto, model, optimizer, data, ema, scaler, stop=None):
        for i, batch in enumerate(auto.batches(data), start=1):
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(batch[0]), batch[1])
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            ema.update_parameters(model)
            auto.step(loss)
            if i == stop:
                break

    whole = objects()
    auto = auto_for(*whole[:2])
    auto.track(ema=whole[3], scaler=whole[4])
    run(auto, *whole)
    half = objects()
    killed = auto_for(*half[:2], run_dir=tmp_path)
    killed.track(ema=half[3], scaler=half[4])
    run(killed, *half, stop=50)
    rest = objects()
    resumed = autolrs.resume(tmp_path, *rest[:2], track={"ema": rest[3], "scaler": rest[4]})
    run(resumed, *rest)
    assert resumed.schedule == auto.schedule
    assert same(tensors(rest[3]), tensors(whole[3]))
    with pytest.raises(ValueError, match=r"other tracked objects: \['ema', 'scaler'\] there, \[\] here"):
        autolrs.resume(tmp_path, *objects()[:2])
    with pytest.raises(TypeError, match="`ema` must have state_dict"):
        autolrs.resume(tmp_path, *objects()[:2], track={"ema": 1, "scaler": rest[4]})


def test_resume_refuses_another_run_by_name(tmp_path):
    killed_at(tmp_path, 50)

    def refuses(error, message, model=None, optimizer=None, **settings):
        model = net() if model is None else model
        optimizer = optimizer or torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
        with pytest.raises(error, match=message):
            autolrs.resume(tmp_path, model, optimizer, **settings)

    refuses(ValueError, "`total_steps` is 60 in .* and 50 here: a run goes on as it began", total_steps=50)
    refuses(ValueError, r"`lr` is \(0.001, 0.1\) in", lr=[0.001, 0.2])
    refuses(TypeError, "unknown setting `colour`", colour="red")
    refuses(ValueError, "not given `evaluate`: give the same now", evaluate=lambda: 1.0)
    refuses(
        ValueError, "another model: only the model has '5.weight'", torch.nn.Sequential(*net(), torch.nn.Linear(3, 3))
    )
    adam = torch.optim.Adam((model := net()).parameters(), lr=0.01)
    refuses(ValueError, "another optimizer: SGD with 1 groups there, Adam", model, adam)


def test_resume_of_nothing_is_a_clear_error(tmp_path):
    model, optimizer, _ = make()
    with pytest.raises(JournalError, match="holds no run"):
        autolrs.resume(tmp_path, model, optimizer)


@pytest.mark.parametrize("damage", ["cut", "garbage", "empty"])
def test_a_damaged_checkpoint_is_a_clear_error(tmp_path, damage):
    killed_at(tmp_path, 50)
    path = tmp_path / "checkpoint.pt"
    data = path.read_bytes()
    path.write_bytes({"cut": data[: len(data) // 2], "garbage": b"not a checkpoint" * 9, "empty": b""}[damage])
    model, optimizer, _ = make()
    with pytest.raises(ValueError, match=r"checkpoint\.pt is not a whole checkpoint of autolrs"):
        autolrs.resume(tmp_path, model, optimizer)


def test_a_checkpoint_never_runs_code(tmp_path):
    killed_at(tmp_path, 50)
    torch.save({"autolrs": 1, "bad": Path("x")}, tmp_path / "checkpoint.pt")
    model, optimizer, _ = make()
    with pytest.raises(ValueError, match="is not a whole checkpoint of autolrs"):
        autolrs.resume(tmp_path, model, optimizer)


def test_a_run_folder_that_holds_a_run_is_not_overwritten(tmp_path):
    killed_at(tmp_path, 50)
    model, optimizer, _ = make()
    with pytest.raises(FileExistsError, match=r"already holds a run: continue it with `autolrs\.resume`"):
        auto_for(model, optimizer, run_dir=tmp_path)


def test_a_run_folder_that_is_a_file_is_a_clear_error(tmp_path):
    (tmp_path / "file").write_text("mine")
    model, optimizer, _ = make()
    with pytest.raises(OSError, match="`run_dir` must be a folder that can be written to, got"):
        auto_for(model, optimizer, run_dir=tmp_path / "file")
    with pytest.raises(OSError, match="`run_dir` must be a folder that can be written to, got"):
        auto_for(model, optimizer, run_dir=tmp_path / "file" / "below")
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full on this system")
def test_a_full_disk_warns_keeps_the_old_checkpoint_and_training_goes_on(tmp_path):
    model, optimizer, data = make()
    auto = auto_for(model, optimizer, run_dir=tmp_path)
    train(auto, model, optimizer, data, stop=36)
    old = (tmp_path / "checkpoint.pt").read_bytes()
    (tmp_path / "checkpoint.pt.partial").symlink_to("/dev/full")
    with pytest.warns(RuntimeWarning, match=r"checkpoint\.pt: No space left on device; the previous one is kept"):
        train(auto, model, optimizer, data)
    assert auto.committed_steps == 60
    assert (tmp_path / "checkpoint.pt").read_bytes() != old  # the one after Finished went through again


def test_errors_of_the_disk_never_stop_a_training(tmp_path, monkeypatch):
    def full(*args, **options):
        raise OSError(errno.ENOSPC, "No space left on device")

    model, optimizer, data = make()
    auto = auto_for(model, optimizer, run_dir=tmp_path)
    monkeypatch.setattr(checkpoint.torch, "save", full)
    monkeypatch.setattr(autolrs.Schedule, "save", full)
    with pytest.warns(RuntimeWarning, match="training goes on") as caught:
        train(auto, model, optimizer, data)
    assert auto.committed_steps == 60 and len(caught) == 5
    assert sorted(path.name for path in tmp_path.iterdir()) == ["journal.jsonl", "journal.lock"]


def test_zip_writer_errors_count_as_errors_of_the_disk(tmp_path, monkeypatch):
    def broken(*args, **options):
        raise RuntimeError("[enforce fail at inline_container.cc:672] . unexpected pos 64 vs 0")

    monkeypatch.setattr(checkpoint.torch, "save", broken)
    with pytest.warns(RuntimeWarning, match="unexpected pos 64 vs 0; the previous one is kept"):
        checkpoint.save(tmp_path, {})
    assert list(tmp_path.iterdir()) == []


def test_checkpoint_every_counts_commits(tmp_path):
    killed_at(tmp_path / "none", 105, checkpoint_every=0)
    assert not (tmp_path / "none" / "checkpoint.pt").exists()
    killed_at(tmp_path / "second", 40, checkpoint_every=2)
    assert not (tmp_path / "second" / "checkpoint.pt").exists()
    model, optimizer, data = make()
    auto = autolrs.resume(tmp_path / "second", model, optimizer, checkpoint_every=2)
    assert auto.raw_steps == 0  # no checkpoint yet: anew, with the recorded settings
    train(auto, model, optimizer, data)
    assert (tmp_path / "second" / "checkpoint.pt").exists() and auto.settings.n_probes == 3


@pytest.mark.skipif(os.name != "posix", reason="needs SIGKILL")
def test_a_process_that_is_killed_in_the_middle_goes_on(tmp_path):
    run_dir = tmp_path / "run"
    program = textwrap.dedent(
        f"""
        import sys, time
        sys.path.insert(0, {str(Path(__file__).parent)!r})
        from nets import *
        model, optimizer, loader = make()
        auto = auto_for(model, optimizer, run_dir={str(run_dir)!r})
        for batch in auto.batches(loader):
            auto.step(train_step(model, optimizer, batch))
            time.sleep(0.01)
        """
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(autolrs.__file__).parents[1]), "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen([sys.executable, "-c", program], env=environment)
    deadline = time.monotonic() + 120
    while process.poll() is None and not (run_dir / "checkpoint.pt").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    time.sleep(0.1)  # into the probes of the second stage
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    lines = (run_dir / "journal.jsonl").read_text().splitlines()
    assert len(lines) > 5 and "Finished" not in json.dumps(lines)
    model, optimizer, data = make()
    expected = auto_for(model, optimizer)
    train(expected, model, optimizer, data)
    again, optimizer, data = make()
    auto = autolrs.resume(run_dir, again, optimizer)
    assert auto.committed_steps >= 20
    train(auto, again, optimizer, data)
    assert auto.schedule == expected.schedule and same(tensors(again), tensors(model))
    assert PAPER["n_probes"] == auto.settings.n_probes
