from __future__ import annotations

import pytest

from autolrs.cli.range_test import chart

pytest.importorskip("torch")
pytest.importorskip("sklearn")

FACTORY = """
import torch

def make():
    model = torch.nn.Linear(3, 1)
    x = torch.randn(16, 3)
    y = x.sum(1, keepdim=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return model, optimizer, [(x, y)], lambda batch: torch.nn.functional.mse_loss(model(batch[0]), batch[1])

def wrong():
    return 1

def broken():
    raise RuntimeError("no data here")
"""


@pytest.fixture
def factory(tmp_path):
    path = tmp_path / "train.py"
    path.write_text(FACTORY)
    return path


def test_a_users_factory(cli, factory, tmp_path):
    pytest.importorskip("matplotlib")
    plot = tmp_path / "range.png"
    result = cli("range-test", f"{factory}:make", "--steps", 60, "--plot", plot)
    assert result.exit_code == 0
    assert "lr=(" in result.stdout
    assert plot.read_bytes().startswith(b"\x89PNG")


def test_the_digits_are_the_default(cli):
    result = cli("range-test", "--steps", 30)
    assert result.exit_code == 0
    assert "lr=(" in result.stdout


@pytest.mark.parametrize(
    "function, message",
    [("wrong", "must return"), ("broken", "no data here"), ("missing", "no function 'missing'")],
)
def test_a_factory_that_does_not_do_is_a_failure_with_one_line(cli, factory, function, message):
    result = cli("range-test", f"{factory}:{function}")
    assert result.exit_code == 1
    assert message in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1


def test_a_file_that_is_not_there(cli, tmp_path):
    result = cli("range-test", f"{tmp_path}/no.py:make")
    assert result.exit_code == 1
    assert "does not exist" in result.stderr


@pytest.mark.parametrize("arguments", [["train.py"], ["a:b", "--low", "1", "--high", "0.1"]])
def test_wrong_usage(cli, arguments):
    assert cli("range-test", *arguments).exit_code == 2


def test_chart_marks_the_interval_and_survives_losses_that_are_not_finite():
    lines = chart([1e-3, 1e-2, 1e-1, 1.0], [3.0, 2.0, 1.0, float("inf")], (1e-3, 1e-1), width=40, height=5)
    marks = lines[-2][11:]
    assert len(lines) == 5 + 3
    assert marks.startswith("=") and 25 <= marks.count("=") <= 28
    assert all(sum(line[11 + i] == "*" for line in lines[:5]) == 1 for i in range(40))
