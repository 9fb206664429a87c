"""The Keras adapter: the cases of `keras_cases.py` on each backend, runs that are killed, the example, Keras's absence.

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

from autolrs import Segment
from test_jax_ import TOY, toy_in_torch

HERE = Path(__file__).parent
CASES = re.findall(r"^def (case_\w+)", (HERE / "keras_cases.py").read_text(), re.MULTILINE)
MISSING = importlib.util.find_spec("tensorflow") is None
BACKENDS = [
    "torch",
    pytest.param("jax", marks=pytest.mark.slow),
    pytest.param("tensorflow", marks=[pytest.mark.slow, pytest.mark.skipif(MISSING, reason="needs tensorflow")]),
]


def python(backend, *arguments, expect=0):
    environment = {**os.environ, "KERAS_BACKEND": backend, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, *map(str, arguments)], capture_output=True, text=True, timeout=290, env=environment
    )
    assert done.returncode == expect, done.stderr
    return done.stdout


def process(backend, *what, expect=0):
    out = python(backend, HERE / "keras_cases.py", json.dumps(what), expect=expect)
    return json.loads(out) if expect == 0 else None


@pytest.fixture(scope="module", params=BACKENDS)
def report(request):
    return process(request.param, "cases")


@pytest.mark.parametrize("case", CASES)
def test_case(report, case):
    assert report[case] == "", report[case]


def test_a_toy_gets_the_schedule_that_pytorch_finds():
    for strategy, rows in process("torch", "toys", TOY).items():
        found, expected = [Segment(*row) for row in rows], toy_in_torch(strategy)
        assert [s.steps for s in found] == [s.steps for s in expected]
        for a, b in zip(found, expected, strict=True):
            assert (a.lr_start, a.lr_end) == pytest.approx((b.lr_start, b.lr_end), rel=1e-3)


@pytest.mark.parametrize(
    ("backend", "stops"),
    [("torch", {"paper": 40, "horizon": 65}), pytest.param("jax", {"horizon": 65}, marks=pytest.mark.slow)],
)
def test_a_killed_fit_goes_on_through_backup_and_restore_to_the_bit(tmp_path, backend, stops):
    folders = {strategy: str(tmp_path / strategy) for strategy in stops}
    for strategy, stop in stops.items():
        process(backend, "killed", folders[strategy], stop, strategy, expect=-signal.SIGKILL)
    epochs = {strategy: stop // 6 for strategy, stop in stops.items()}
    assert process(backend, "resumed", folders) == epochs  # from the last whole epoch on


def test_the_example_runs_and_its_replay_logs_the_same():
    path = HERE.parent / "examples" / "keras_digits.py"
    assert len(path.read_text().splitlines()) <= 60
    out = python("torch", path)
    assert float(re.search(r"test accuracy (\S+) after", out)[1]) > 0.9
    assert "a replay logs the same: True" in out


def test_without_keras_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "keras", None)
    for name in [name for name in sys.modules if name.startswith("autolrs.keras_")]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(ImportError, match=r"pip install 'autolrs\[keras\]'"):
        import autolrs.keras_  # noqa: F401
