"""Regressions whose targets are not 0 in the mean: any LR learns that at once, and the rest wants a high one."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from autolrs import AutoLRS
from autolrs.core.types import peak_lr


def trained(above, make, total=1200, **settings):
    """The loss on other points of a network that learned waves, higher by `above`; the peak, and what was said."""
    torch.manual_seed(3)
    x = 2 * torch.rand(3000, 3) - 1
    y = torch.sin(4 * x[:, :1] + x[:, 1:2]) * torch.cos(3 * x[:, 2:]) + above
    model = nn.Sequential(nn.Linear(3, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1))
    data = torch.utils.data.TensorDataset(x[:2000], y[:2000])
    optimizer, notes = make(model.parameters()), []
    auto = AutoLRS(model, optimizer, total_steps=total, **settings)
    auto.on_event(lambda event: notes.append(getattr(event, "message", "")))
    for features, target in auto.batches(torch.utils.data.DataLoader(data, batch_size=32, shuffle=True)):
        loss = nn.functional.mse_loss(model(features), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        auto.step(loss)
    with torch.no_grad():
        left = nn.functional.mse_loss(model(x[2000:]), y[2000:]).item()
    return left, peak_lr(auto.schedule.segments), " ".join(notes)


@pytest.mark.parametrize("above", [2.0, -3.0])
def test_adam_takes_the_usual_lr_and_learns_more_than_the_mean(above):
    loss, peak, said = trained(above, lambda weights: torch.optim.Adam(weights, lr=1e-3))
    assert "which is usual, did well, and beside so deep a fall little else was seen" in said
    assert peak == pytest.approx(0.8 / (3 * 64 * 64) ** (1 / 3), rel=0.01)
    assert loss < 0.05  # of a variance of .22


def test_sgd_goes_by_its_slow_ramp():
    loss, peak, said = trained(2.0, lambda weights: torch.optim.SGD(weights, lr=0.1, momentum=0.9))
    assert "100% of the way up to" in said and math.isfinite(loss)
    assert peak > 0.008  # .007 by what miniature runs say alone
