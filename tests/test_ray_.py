"""Ray actors as workers, in processes of their own: Ray's threads have no place in the one that runs the tests."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from autolrs.bench import parallel
from autolrs.cli.doctor import examine
from autolrs.core.types import Noted
from autolrs.run import journal

ROOT = Path(__file__).parents[1]
SCRIPT = Path(__file__).with_name("ray_script.py")

pytestmark = [pytest.mark.distributed, pytest.mark.timeout(900)]  # seconds on a free machine, minutes on a busy one


def process(*arguments, **values):
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, *map(str, arguments)], capture_output=True, text=True, timeout=800, env=environment, **values
    )


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ray")
    done = process(SCRIPT, "shared", folder)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1]), folder  # Ray reports dead workers before it


def test_one_worker_equals_a_session_to_the_bit(shared):
    assert shared[0]["one worker"]


def test_two_workers_probe_at_once_and_choose_the_same(shared):
    assert shared[0]["two workers"]
    assert shared[0]["probes at once"] == 2


def test_workers_that_die_in_a_probe_and_in_a_commit_are_replaced(shared):
    assert shared[0]["deaths"]
    assert [re.search("probe|commit", note)[0] for note in shared[0]["death notes"]] == ["probe", "commit"]


def test_a_worker_that_hangs_does_not_hold_up_the_run(shared):
    assert shared[0]["straggler"]
    late = [note for note in shared[0]["straggler notes"] if "another gets it too" in note]
    assert late and re.search(r"has been at probe \d of stage 0", late[0])


def test_weights_are_averaged_by_default_and_equal_those_of_autolrs_to_the_bit(shared):
    assert shared[0]["averaged"] == {"settings": True, "schedule": True, "weights": True, "events": [True]}


def test_what_a_run_that_is_not_told_does_about_averaging(tmp_path):
    done = process(SCRIPT, "defaults", tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    on, off, only = [True, 0.5, 0.1, 0.85], [False, 0.0, 0.0, 1.1], [True, 0.0, 0.0, 1.1]
    assert {name: found[name] for name in ("long", "short, on", "own hold")} == {
        **{"long": on, "short, on": on},
        "own hold": [True, 0.25, *on[2:]],
    }
    assert all(found[name] == off for name in ("short", "off", "paper", "Paper", "Settings", "cannot"))
    assert found["Settings, on"] == only  # taken as they are
    assert "`averaging` must be off where the training has no averager" in found["cannot, on"]


@pytest.mark.parametrize("name", ["two", "averaged"])
def test_the_run_folder_is_sound(shared, name):
    checks = list(examine(shared[1] / name))
    assert len(checks) > 6 and all(check.verdict == "ok" for check in checks)


def test_errors_say_what_is_wrong(shared):
    assert "no data today" in shared[0]["broken"]
    assert "`num_workers`=3 needs 3 CPUs and Ray has 2" in shared[0]["greedy"]
    assert "PortableHost, got dict without snapshot" in shared[0]["nonsense"]
    assert "already holds a run: continue it with `autolrs.ray_.resume`" in shared[0]["used folder"]
    assert shared[0]["still there"]


@pytest.mark.slow
def test_a_killed_driver_is_resumed_from_its_folder(tmp_path):
    killed = process(SCRIPT, "begin", tmp_path)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    done = process(SCRIPT, "go_on", tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"same": True, "own Ray ended": True}


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("odd", "last batch of an epoch, 1 examples, cannot be split equally on 2 workers"),
        ("no torch task", "TypeError: `commit`='ddp' needs a PyTorch training: `make_task` must give"),
        ("alone", "ValueError: `commit`='ddp' needs `num_workers` of at least 2, got 1"),
        ("options", "may be num_cpus, num_gpus, memory, resources and runtime_env, got name"),
        ("commit", "`commit` must be 'one' or 'ddp', got 'all'"),
    ],
)
def test_what_cannot_commit_on_all_workers_is_refused_before_the_run_begins(shared, name, message):
    assert message in shared[0][name]
    assert shared[0]["nothing begun"]


@pytest.mark.slow
def test_commits_on_all_workers_survive_a_lost_rank_and_driver_and_equal_those_of_one(tmp_path):
    killed = process(SCRIPT, "begin_together", tmp_path)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    notes = [event.message for event in journal.read(tmp_path / "killed") if isinstance(event, Noted)]
    assert notes[0] == "commits run as data-parallel training on all 2 workers"
    lost = r"the team of 2 workers died \(rank .*\): the commit of stage 0 is issued again"
    assert sum(re.fullmatch(lost, note) is not None for note in notes) == 1
    done = process(SCRIPT, "go_on_together", tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["ddp"]["schedule"] == found["one"]["schedule"]
    assert found["ddp"]["losses"] == pytest.approx(found["one"]["losses"], rel=1e-3)
    assert found["ddp"]["weights"] == pytest.approx(found["one"]["weights"], abs=1e-4)
    assert all(check.verdict == "ok" for check in examine(tmp_path / "killed"))


@pytest.mark.slow
def test_the_example_trains_and_says_nothing_else(tmp_path):
    done = process(ROOT / "examples" / "ray_digits.py", tmp_path / "run")
    assert done.returncode == 0, done.stderr
    assert float(re.search(r"validation loss ([\d.]+)", done.stdout)[1]) < 0.45
    assert len(done.stdout.splitlines()) == 2 and not done.stderr.strip()
    assert all(check.verdict == "ok" for check in examine(tmp_path / "run"))


def test_the_page_shows_the_example_as_it_is():
    page = (ROOT / "docs" / "ray.md").read_text()
    example = (ROOT / "examples" / "ray_digits.py").read_text()
    assert example.split("\n\n", 1)[1].strip() in page
    assert len(example.splitlines()) <= 60


def test_without_ray_the_error_names_the_extra():
    code = "import sys; sys.modules['ray'] = None; import autolrs.ray_"
    done = process("-c", code)
    assert "ImportError: autolrs.ray_ needs Ray: pip install 'autolrs[ray]'" in done.stderr


def test_commits_on_all_workers_need_torch():
    code = "import sys; sys.modules['torch'] = None; from autolrs import ray_; ray_.fit(dict, {}, commit='ddp')"
    done = process("-c", code)
    assert "ImportError: `commit`='ddp' needs PyTorch: pip install 'autolrs[torch]'" in done.stderr


def test_commits_on_all_workers_need_a_ray_that_was_tested():
    code = "import ray; ray.__version__ = '2.40.1'; from autolrs import ray_; ray_.fit(dict, {}, commit='ddp')"
    done = process("-c", code)
    assert "ImportError: `commit`='ddp' needs Ray 2.60 or newer, got 2.40.1" in done.stderr


def test_an_error_of_the_users_code_on_one_rank_is_what_comes_out_of_a_commit():
    code = """
from ray.exceptions import NodeDiedError

from autolrs.ray_train_ import _reason
from autolrs.run.comm import LostRankError

waited, mine, died = LostRankError("waited"), ZeroDivisionError("mine"), NodeDiedError("died")
for failures in ({0: waited, 1: mine}, {0: waited, 1: died}, {1: waited}):
    print(repr(_reason(failures)))
"""
    assert process("-c", code).stdout.splitlines() == [
        "ZeroDivisionError('mine')",
        "LostTeamError('rank 1: died')",
        "LostTeamError('rank 1 lost another: waited')",
    ]


def test_the_measured_law_holds_on_the_virtual_clock():
    rows = list(parallel.simulated())
    assert [row.workers for row in rows] == [1, 2, 4, 8, 16, 32, 64]
    assert [row.ratio for row in rows] == pytest.approx([row.law for row in rows])
    assert rows[0].ratio == pytest.approx(2.0) and rows[-1].ratio == pytest.approx(1.1)
