"""The JAX adapter: all cases of a `jax_*cases.py` in one process, killed runs, the example, and JAX's absence."""

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
from autolrs.pytorch.averaging import Averager
from helpers import TOY, assert_toys_agree, toy_in_numpy

HERE = Path(__file__).parent
FILES = ("jax_cases.py", "jax_averaging_cases.py")


def cases(file):
    return re.findall(r"^def (case_\w+)", (HERE / file).read_text(), re.MULTILINE)


def process(*what, expect=0, file=FILES[0], **environment):
    done = subprocess.run(
        [sys.executable, str(HERE / file), json.dumps(what)],
        **{"capture_output": True, "text": True, "timeout": 280, "env": {**os.environ, **environment}},
    )
    assert done.returncode == expect, done.stderr
    return json.loads(done.stdout) if expect == 0 else None


@pytest.fixture(scope="module")
def reports():
    return {}


@pytest.mark.parametrize(("file", "case"), [(file, case) for file in FILES for case in cases(file)])
def test_case(reports, file, case):
    if file not in reports:
        reports[file] = process("cases", file=file)
    assert reports[file][case] == "", reports[file][case]


def toy_in_torch(strategy):
    w = torch.nn.ParameterDict({"w": torch.ones(2)})
    optimizer = torch.optim.SGD(w.parameters(), lr=0.1)
    auto = autolrs.AutoLRS(w, optimizer, strategy=strategy, averaging=False, **TOY[strategy])
    for _ in auto.batches([0] * 5):
        loss = 0.5 * (torch.tensor([1.0, 0.05]) * w["w"] * w["w"]).sum() + 0.1
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        auto.step(loss)
    return [(s.steps, s.lr_start, s.lr_end) for s in auto.schedule.segments]


def test_a_toy_gets_the_schedule_that_every_adapter_finds():
    for strategy, rows in process("toys", TOY).items():
        assert_toys_agree(rows, toy_in_numpy(strategy))
        assert_toys_agree(toy_in_torch(strategy), toy_in_numpy(strategy))


def test_averages_are_those_of_the_torch_adapter():
    makes = {
        "adam": lambda p: torch.optim.Adam(p, lr=0.05),
        "sgd": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9),
        "plain": lambda p: torch.optim.SGD(p, lr=0.05),
    }
    for name, found in process("walks", file=FILES[1]).items():
        model = torch.nn.ParameterDict({"w": torch.ones(2, dtype=torch.float64)})
        optimizer = makes[name](model.parameters())
        averager = Averager(model, optimizer)
        for _ in range(60):
            model["w"].grad = torch.tensor([1.0, 0.05], dtype=torch.float64) * model["w"].detach()
            optimizer.step()
            averager.update()
        with averager.averaged():
            x = model["w"].tolist()
        assert found[0] == pytest.approx(x, rel=1e-9)
        assert found[1] == pytest.approx(model["w"].tolist(), rel=1e-9)
        assert found[0] != pytest.approx(found[1], rel=1e-3)


def test_averages_lie_where_the_weights_are():
    compiled = process("sharded", file=FILES[1], XLA_FLAGS="--xla_force_host_platform_device_count=2")
    assert compiled == 1


def test_processes_that_are_killed_go_on_to_the_bit(tmp_path):
    stops = {"paper": 80, "practical": 4, "horizon": 1700}
    folders = {strategy: str(tmp_path / strategy) for strategy in stops}
    for strategy, stop in stops.items():
        process("killed", folders[strategy], stop, strategy, expect=-signal.SIGKILL)
    assert process("resumed", folders) == {"paper": 20, "practical": 0, "horizon": 1400}  # from these steps on


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
