"""`AutoLRS(progress=True)`: plain lines where there is no terminal, a live picture where there is, and the same run."""

from __future__ import annotations

import io
import sys

import pytest
import torch
from torch import nn

import autolrs


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def train(progress: bool, run_dir=None, steps: int | None = None, **settings) -> autolrs.AutoLRS:
    torch.manual_seed(0)
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x = torch.randn(64, 4)
    data = torch.utils.data.TensorDataset(x, x.sum(1, keepdim=True))
    loader = torch.utils.data.DataLoader(data, batch_size=16)
    options = {"total_steps": 200, "lr": (1e-3, 1.0), "strategy": "paper", "stage_steps": 50, "max_stage_steps": 100}
    options |= {"n_probes": 3, **settings}
    auto = autolrs.AutoLRS(model, optimizer, progress=progress, run_dir=run_dir, **options)
    for features, target in auto.batches(loader):
        if steps is not None and auto.raw_steps >= steps:
            break
        loss = nn.functional.mse_loss(model(features), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        auto.step(loss)
    return auto


def test_plain_lines_without_a_terminal(capsys):
    watched = train(True)
    lines = capsys.readouterr().out.splitlines()
    assert sum("probe" in line for line in lines) == 9
    assert sum("steps at LR" in line for line in lines) == 3
    assert not any("\x1b" in line for line in lines)
    assert watched.schedule == train(False).schedule
    assert capsys.readouterr().out == ""


def test_a_picture_in_a_terminal(monkeypatch):
    pytest.importorskip("rich")
    out = Terminal()
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setattr(sys, "stdout", out)
    train(True)
    monkeypatch.undo()
    text = out.getvalue()
    assert "finished" in text and "200/200 steps" in text and "autolrs: paper, 200 steps" in text


def test_averaging_is_watched_too(capsys):
    train(True, strategy="horizon", averaging=True, total_steps=300)
    assert "steps at LR" in capsys.readouterr().out


def test_a_resumed_run_is_watched_again(tmp_path, capsys):
    train(False, tmp_path, steps=150)
    model = nn.Linear(4, 1)
    auto = autolrs.resume(tmp_path, model, torch.optim.SGD(model.parameters(), lr=0.1), progress=True)
    while not auto.done:
        auto.step(1.0)
    assert "steps at LR" in capsys.readouterr().out


def test_the_journal_names_the_machine(tmp_path):
    from autolrs.run import journal

    train(False, tmp_path, steps=3)
    versions = journal.read(tmp_path)[0].versions
    assert "cores" in versions["machine"] and versions["device"]
