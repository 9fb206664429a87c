"""The JAX adapter: all cases of `jax_cases.py` in one process, runs that are killed, the example, and JAX's absence."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import autolrs
from autolrs import Segment

HERE = Path(__file__).parent
CASES = re.findall(r"^def (case_\w+)", (HERE / "jax_cases.py").read_text(), re.MULTILINE)

# Two coordinates of a quadratic without noise; `tests/test_keras_.py` has the same.
TOY = {
    "horizon": {"total_steps": 400, "lr": (1e-3, 10.0), "max_cost": 1.5},
    "paper": {
        **{"total_steps": 120, "lr": (1e-2, 1.0), "stage_steps": 40, "max_stage_steps": 80, "probe_fraction": 0.25},
        **{"n_probes": 4, "replay": True},
    },
}


def process(*what, expect=0):
    done = subprocess.run(
        [sys.executable, str(HERE / "jax_cases.py"), json.dumps(what)], capture_output=True, text=True, timeout=280
    )
    assert done.returncode == expect, done.stderr
    return json.loads(done.stdout) if expect == 0 else None


@pytest.fixture(scope="module")
def report():
    return process("cases")


@pytest.mark.parametrize("case", CASES)
def test_case(report, case):
    assert report[case] == "", report[case]


def toy_in_torch(strategy):
    w = torch.nn.ParameterDict({"w": torch.ones(2)})
    optimizer = torch.optim.SGD(w.parameters(), lr=0.1)
    auto = autolrs.AutoLRS(w, optimizer, strategy=strategy, **TOY[strategy])
    for _ in auto.batches([0] * 5):
        loss = 0.5 * (torch.tensor([1.0, 0.05]) * w["w"] * w["w"]).sum() + 0.1
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        auto.step(loss)
    return auto.schedule.segments


def test_a_toy_gets_the_schedule_that_pytorch_finds():
    for strategy, rows in process("toys", TOY).items():
        found, expected = [Segment(*row) for row in rows], toy_in_torch(strategy)
        assert [s.steps for s in found] == [s.steps for s in expected]
        for a, b in zip(found, expected, strict=True):
            assert (a.lr_start, a.lr_end) == pytest.approx((b.lr_start, b.lr_end), rel=1e-3)


def test_processes_that_are_killed_go_on_to_the_bit(tmp_path):
    stops = {"paper": 80, "practical": 4, "horizon": 1700}
    folders = {strategy: str(tmp_path / strategy) for strategy in stops}
    for strategy, stop in stops.items():
        process("killed", folders[strategy], stop, strategy, expect=-signal.SIGKILL)
    assert process("resumed", folders) == {"paper": 20, "practical": 0, "horizon": 1000}  # from these steps on


def test_the_example_runs():
    path = HERE.parent / "examples" / "jax_digits.py"
    assert len(path.read_text().splitlines()) <= 60
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, timeout=280, env=environment)
    assert done.returncode == 0, done.stderr
    accuracy = float(re.search(r"test accuracy (\S+),", done.stdout)[1])
    assert accuracy > 0.9 and "compiled 1 time" in done.stdout


def test_without_jax_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "jax", None)
    for name in [name for name in sys.modules if name.startswith("autolrs.jax_")]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(ImportError, match=r"pip install 'autolrs\[jax\]'"):
        import autolrs.jax_  # noqa: F401
