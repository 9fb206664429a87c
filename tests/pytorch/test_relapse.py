"""A network that breaks in the middle of its run, without a loss that is not finite, is put back to before that."""

from __future__ import annotations

import torch
from torch import nn

from autolrs import AutoLRS
from autolrs.core.types import Failed


def test_broken_weights_are_undone_and_the_run_goes_on_lower():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 1))
    x = torch.randn(256, 4)
    y = x.sum(1, keepdim=True).sin()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    auto = AutoLRS(model, optimizer, total_steps=1000)
    events = []
    auto.on_event(events.append)
    broken, lrs = False, {}
    for index in auto.batches(torch.utils.data.DataLoader(torch.arange(256), batch_size=32, shuffle=True)):
        broken = broken or auto.committed_steps == 430  # in the fifth stretch
        if broken and not any(isinstance(event, Failed) for event in events):
            with torch.no_grad():
                model[2].bias.fill_(3.0)
        loss = nn.functional.mse_loss(model(x[index]), y[index])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        info = auto.step(loss)
        if not info.exploring:
            lrs[info.committed_steps] = info.lr
    (failed,) = (event for event in events if isinstance(event, Failed))
    assert failed.level > 0.2 and 30 <= failed.steps <= 100
    assert auto.done and auto.committed_steps == 1000
    assert lrs[402] < 0.3 * lrs[399]
    assert nn.functional.mse_loss(model(x), y).item() < 0.1
