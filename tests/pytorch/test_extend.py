"""`auto.extend` in a real loop: more steps, no jump, and the journal can be resumed afterwards."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import autolrs
from autolrs.core.engine import fold
from autolrs.run import journal

X = torch.randn(128, 4, generator=torch.Generator().manual_seed(0))


def build():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = nn.Linear(4, 1)
    data = torch.utils.data.TensorDataset(X, X.sum(1, keepdim=True))
    return model, torch.optim.SGD(model.parameters(), lr=0.1), torch.utils.data.DataLoader(data, batch_size=16)


def train(auto, model, optimizer, loader, until=None):
    for x, y in auto.batches(loader):
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        auto.step(loss)
        if until and not auto.exploring and auto.committed_steps >= until:
            break


def test_run_is_extended_half_way_and_again_after_its_end(tmp_path):
    model, optimizer, loader = build()
    auto = autolrs.AutoLRS(model, optimizer, total_steps=400, run_dir=tmp_path / "a")
    train(auto, model, optimizer, loader, until=200)
    auto.extend(600)
    train(auto, model, optimizer, loader)
    assert auto.done and auto.committed_steps == 600
    auto.extend(800)
    assert not auto.done
    train(auto, model, optimizer, loader)
    lrs = auto.schedule.lrs()
    assert len(lrs) == 800
    assert np.abs(np.diff(lrs[20:600])).max() < 0.02 * lrs.max()
    assert fold(journal.read(tmp_path / "a")) == auto.session.state


def test_extended_run_that_was_killed_is_resumed_with_its_new_budget(tmp_path):
    ends = []
    for kill in (False, True):
        model, optimizer, loader = build()
        folder = tmp_path / str(kill)
        auto = autolrs.AutoLRS(model, optimizer, total_steps=400, run_dir=folder)
        train(auto, model, optimizer, loader, until=200)
        auto.extend(600)
        if kill:
            train(auto, model, optimizer, loader, until=300)
            model, optimizer, loader = build()
            auto = autolrs.resume(folder, model, optimizer)
        train(auto, model, optimizer, loader)
        assert auto.committed_steps == 600
        ends.append((auto.schedule, model.weight.detach().clone()))
    assert ends[0][0] == ends[1][0]
    assert torch.equal(ends[0][1], ends[1][1])


def test_resume_with_a_larger_budget_extends_the_run_and_with_a_smaller_one_is_refused(tmp_path):
    model, optimizer, loader = build()
    auto = autolrs.AutoLRS(model, optimizer, total_steps=400, run_dir=tmp_path / "a")
    train(auto, model, optimizer, loader)
    model, optimizer, loader = build()
    with pytest.raises(ValueError, match="total_steps"):
        autolrs.resume(tmp_path / "a", model, optimizer, total_steps=300)
    auto = autolrs.resume(tmp_path / "a", model, optimizer, total_steps=700)
    train(auto, model, optimizer, loader)
    assert auto.schedule.total_steps == 700


@pytest.mark.parametrize("strategy", ["horizon", "paper"])
def test_killed_run_is_resumed_with_a_larger_budget_by_either_strategy(tmp_path, strategy):
    model, optimizer, loader = build()
    options = {"lr": (1e-3, 1e-1), "stage_steps": 100} if strategy == "paper" else {}
    auto = autolrs.AutoLRS(model, optimizer, total_steps=1500, strategy=strategy, run_dir=tmp_path / "a", **options)
    train(auto, model, optimizer, loader, until=320)
    model, optimizer, loader = build()
    auto = autolrs.resume(tmp_path / "a", model, optimizer, total_steps=1800)
    train(auto, model, optimizer, loader)
    assert auto.schedule.total_steps == 1800
    assert fold(journal.read(tmp_path / "a")) == auto.session.state
