"""Sharded runs that go on with another number of ranks: all of the state to the bit, or a refusal that says why."""

import shutil
import subprocess
import sys

import pytest
import torch
from ranks import HERE, environment, launch, reports

from autolrs.run import journal

pytest.importorskip("torch.distributed")

pytestmark = [pytest.mark.distributed, pytest.mark.timeout(280)]

RUNS = ["fsdp", "tensor parallel", "averaged", "looked", "between probes", "zero", "tracked"]
WORK = ["fsdp", "tensor parallel", "averaged", "looked"]


@pytest.fixture(scope="module")
def by_two(tmp_path_factory):
    folder = tmp_path_factory.mktemp("two")
    begun = launch("reshard_worker.py", folder, "begin", *RUNS)
    assert all(rank["looked"]["kept"] for rank in begun)  # there is a best state to leave behind
    return folder


@pytest.fixture(scope="module")
def by_one(tmp_path_factory):
    folder = tmp_path_factory.mktemp("one")
    alone(folder, "begin", *WORK)
    return folder


def alone(folder, *arguments):
    """The worker in one process that knows nothing of ranks."""
    script = [sys.executable, HERE / "reshard_worker.py", folder, *arguments]
    done = subprocess.run(script, env=environment(), capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    return reports(folder, 1)


def copied(folder, tmp_path):
    return shutil.copytree(folder, tmp_path / "copy")


def check(ranks, name):
    for rank in ranks:
        assert rank[name]["error"] == "no error"
        assert rank[name]["same"] and rank[name]["begun"] == 20
        assert rank[name]["committed"] == (90 if name in ("averaged", "looked") else 60)
        # Weights, and of each three moments; with averages two more.
        assert rank[name]["tensors"] == {"fsdp": 24, "tensor parallel": 16, "averaged": 36, "looked": 36}[name]


@pytest.mark.parametrize("size", [1, 3])
def test_another_number_of_ranks_goes_on_with_the_same_bits(by_two, tmp_path, size):
    folder = copied(by_two, tmp_path)
    runs = [name for name in RUNS if size == 1 or name != "tensor parallel"]  # which does not split 8 into 3
    ranks = launch("reshard_worker.py", folder, "resume", *runs, ranks=size)
    for name in set(WORK) & set(runs):
        check(ranks, name)
        notes = [e.message for e in journal.read(folder / name) if type(e).__name__ == "Noted"]
        (said,) = [note for note in notes if f"going on with {size} ranks instead of 2" in note]
        assert ("the best state so far lay in shards and is left behind" in said) == (name == "looked")
    for rank in ranks:
        sizes = f"ValueError: this run was saved by 2 ranks and there are {size} now: "
        assert sizes + "a sharded one that was saved between two commits must go on" in rank["between probes"]["error"]
        assert sizes + "each rank of a ZeroRedundancyOptimizer keeps another part" in rank["zero"]["error"]
        assert sizes + "the tracked 'double' is sharded" in rank["tracked"]["error"]


def test_one_process_goes_on_with_what_ranks_had_sharded(by_two, tmp_path):
    found = alone(copied(by_two, tmp_path), "resume", *WORK)
    for name in WORK:
        check(found, name)


def test_ranks_go_on_with_what_one_process_had_whole(by_one, tmp_path):
    ranks = launch("reshard_worker.py", copied(by_one, tmp_path), "resume", *WORK)
    for name in WORK:
        check(ranks, name)


def test_without_the_newest_point_the_one_before_serves(by_two, tmp_path):
    folder = copied(by_two, tmp_path)
    (folder / "between probes" / "checkpoint.pt").unlink()
    found = alone(folder, "resume", "between probes")[0]["between probes"]
    assert (found["error"], found["same"], found["begun"]) == ("no error", True, 20)
    assert torch.load(folder / "between probes" / "checkpoint.pt", weights_only=True)["ranks"] == 1
