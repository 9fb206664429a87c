"""The Keras adapter: the cases of two files on each backend, runs that are killed, the example, Keras's absence.

Each backend has a process of its own: Keras knows one backend a process, and JAX's threads do not go with forks.
"""

import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from helpers import TOY, assert_toys_agree, toy_in_numpy

pytestmark = pytest.mark.timeout(900)  # a backend's cases run in one process, minutes of it on a busy machine
HERE = Path(__file__).parent
TEXT = "".join((HERE / name).read_text() for name in ("keras_cases.py", "keras_averaging_cases.py"))
CASES = re.findall(r"^def ((?:tensorflow_)?case_\w+)", TEXT, re.MULTILINE)


def on(backend, *values):
    """A parameter, skipped where the backend is missing: TensorFlow in `.venv`, the others in `.venv-tensorflow`."""
    missing = pytest.mark.skipif(importlib.util.find_spec(backend) is None, reason=f"needs {backend}")
    slow = [] if backend == "torch" else [pytest.mark.slow]
    return pytest.param(backend, *values, marks=[missing, *slow])


BACKENDS = [on("torch"), on("jax"), on("tensorflow")]


def python(backend, *arguments, expect=0):
    environment = {**os.environ, "KERAS_BACKEND": backend, "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, *map(str, arguments)], capture_output=True, text=True, env=environment)
    assert done.returncode == expect, done.stderr
    return done.stdout


def process(backend, *what, expect=0):
    out = python(backend, HERE / "keras_cases.py", json.dumps(what), expect=expect)
    return json.loads(out) if expect == 0 else None


@pytest.fixture(scope="module", params=BACKENDS)
def report(request):
    return process(request.param, "cases")


@pytest.fixture(scope="module", params=[on("tensorflow")])
def own_report(request):
    return process(request.param, "cases", "tensorflow_case_")


@pytest.mark.parametrize("case", [case for case in CASES if case.startswith("case_")])
def test_case(report, case):
    assert report[case] == "", report[case]


@pytest.mark.parametrize("case", [case for case in CASES if case.startswith("tensorflow_")])
def test_case_of_one_backend(own_report, case):
    assert own_report[case] == "", own_report[case]


@pytest.mark.parametrize("backend", [on("torch"), on("tensorflow")])
def test_a_toy_gets_the_schedule_that_every_adapter_finds(backend):
    for strategy, rows in process(backend, "toys", TOY).items():
        assert_toys_agree(rows, toy_in_numpy(strategy))


@pytest.mark.parametrize(
    ("backend", "stops"),
    [
        on("torch", {"paper": 40, "horizon": 65, "averaged": 65}),
        on("jax", {"horizon": 65, "averaged": 65}),
        on("tensorflow", {"paper": 40}),
        on("tensorflow", {"horizon": 65}),
        on("tensorflow", {"averaged": 65}),
    ],
)
def test_a_killed_fit_goes_on_through_backup_and_restore_to_the_bit(tmp_path, backend, stops):
    folders = {strategy: str(tmp_path / strategy) for strategy in stops}
    for strategy, stop in stops.items():
        process(backend, "killed", folders[strategy], stop, strategy, expect=-signal.SIGKILL)
    epochs = {strategy: stop // 6 for strategy, stop in stops.items()}
    assert process(backend, "resumed", folders) == epochs  # from the last whole epoch on


@pytest.mark.parametrize("backend", [on("torch"), on("tensorflow")])
def test_the_example_runs_and_its_replay_logs_the_same(backend):
    path = HERE.parent / "examples" / "keras_digits.py"
    assert len(path.read_text().splitlines()) <= 60
    out = python(backend, path)
    assert float(re.search(r"test accuracy (\S+) after", out)[1]) > 0.9
    assert "a replay logs the same: True" in out


def test_without_keras_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "keras", None)
    for name in [name for name in sys.modules if name.startswith("autolrs.keras_")]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(ImportError, match=r"pip install 'autolrs\[keras\]'"):
        import autolrs.keras_  # noqa: F401
