"""A run folder that cannot be written to any more in the middle of a run: training goes on and nothing is lost."""

import pytest
from nets import auto_for, make, same, tensors, train

import autolrs
from autolrs.cli.doctor import examine
from autolrs.core.engine import fold
from autolrs.run import journal
from unwritable import moved_away, read_only

FAULTS = {"read-only": read_only, "moved away": moved_away}


@pytest.fixture(scope="module")
def undisturbed():
    model, optimizer, data = make()
    auto = auto_for(model, optimizer)
    train(auto, model, optimizer, data)
    return auto.schedule, tensors(model)


def half(folder):
    """A run up to the middle of its first commit: 15 steps of probes, 7 of the commit's 20."""
    model, optimizer, data = make()
    auto = auto_for(model, optimizer, run_dir=folder)
    train(auto, model, optimizer, data, stop=22)
    return auto, model, optimizer, data


def go_on(auto, model, optimizer, data, stop=None):
    with pytest.warns(RuntimeWarning) as caught:
        train(auto, model, optimizer, data, stop)
    return [str(warning.message) for warning in caught]


@pytest.mark.parametrize("fault", FAULTS)
def test_training_goes_on_with_warnings_and_what_was_missed_is_written_later(tmp_path, undisturbed, fault):
    folder = tmp_path / "run"
    auto, model, optimizer, data = half(folder)
    with FAULTS[fault](folder):
        said = go_on(auto, model, optimizer, data, 40)  # over the end of the commit, into the second stage's
    assert [name for name in ("journal.jsonl", "schedule.json", "checkpoint.pt") if any(name in s for s in said)] == [
        "journal.jsonl",
        "schedule.json",
        "checkpoint.pt",
    ]
    assert all("cannot write" in s and "training goes on" in s for s in said)
    assert len([s for s in said if "journal.jsonl" in s]) == 1  # not once an event
    train(auto, model, optimizer, data)
    assert (auto.schedule, fold(journal.read(folder))) == (undisturbed[0], auto.session.state)
    assert same(tensors(model), undisturbed[1])
    assert all(check.verdict == "ok" for check in examine(folder))
    assert autolrs.Schedule.load(folder / "schedule.json") == auto.schedule


@pytest.mark.parametrize("fault", FAULTS)
def test_a_run_that_ends_without_its_folder_is_whole_in_memory_and_resumes_from_before(tmp_path, undisturbed, fault):
    folder = tmp_path / "run"
    auto, model, optimizer, data = half(folder)
    train(auto, model, optimizer, data, stop=20)  # 42 steps: the first commit has its checkpoint
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    with FAULTS[fault](folder):
        go_on(auto, model, optimizer, data)
        assert (auto.done, auto.schedule) == (True, undisturbed[0])
        assert same(tensors(model), undisturbed[1])
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    del auto  # and with it the lock
    model, optimizer, data = make(seed=3)
    again = autolrs.resume(folder, model, optimizer)
    assert again.committed_steps < 60
    train(again, model, optimizer, data)
    assert again.schedule == undisturbed[0]
    assert same(tensors(model), undisturbed[1])
