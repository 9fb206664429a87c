"""Averaged weights: the formula, the hand-over at the end, checkpoints, and what stays untouched."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from autolrs import AutoLRS
from autolrs.core.types import Averaged
from autolrs.pytorch.averaging import SHARPNESS, Averager

X = torch.randn(256, 6, generator=torch.Generator().manual_seed(0))
Y = X[:, :3].argmax(1)


def build(seed=0):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))
    data = torch.utils.data.TensorDataset(X, Y)
    return model, torch.optim.Adam(model.parameters()), torch.utils.data.DataLoader(data, batch_size=16)


def train(auto, model, optimizer, loader, stop=None):
    for n, (x, y) in enumerate(auto.batches(loader), start=1):
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        auto.step(loss)
        if n == stop:
            break


def validation(model):
    def evaluate():
        with torch.no_grad():
            return nn.functional.cross_entropy(model(X), Y).item()

    return evaluate


def tensors(model):
    return [tensor.detach().clone() for tensor in (*model.parameters(), *model.buffers())]


def same(a, b):
    return all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


def test_average_follows_the_polynomial_formula():
    model = nn.Linear(1, 1, bias=False)
    averager = Averager(model, None)
    expected = math.nan
    for n in range(200):
        with torch.no_grad():
            model.weight.fill_(float(n))
        averager.update()
        weight = min(1.0, SHARPNESS / (n + 1))
        expected = n if n == 0 else expected + weight * (n - expected)
    assert averager.model().weight.item() == pytest.approx(expected, rel=1e-5)
    assert 180 < expected < 199  # the beginning is forgotten


def test_averaged_model_is_a_copy_and_leaves_the_live_one_alone():
    model, optimizer, loader = build()
    auto = AutoLRS(model, optimizer, total_steps=400, averaging=True)
    train(auto, model, optimizer, loader, stop=300)
    before = tensors(model)
    averaged = auto.averaged_model
    assert same(tensors(model), before)
    assert not same(tensors(averaged), before)
    with torch.no_grad():
        averaged[0].weight.zero_()
    assert same(tensors(model), before)


def test_without_averaging_there_is_no_averaged_model():
    model, optimizer, _ = build()
    with pytest.raises(RuntimeError, match="averaging"):
        AutoLRS(model, optimizer, total_steps=400).averaged_model  # noqa: B018


def test_model_is_given_the_averaged_weights_at_the_end_unless_validation_prefers_the_raw_ones():
    for better in ("averaged", "raw"):
        model, optimizer, loader = build()
        real = validation(model)
        calls = []

        def evaluate(calls=calls, real=real, better=better):
            calls.append(real())
            return calls[-1] if better == "averaged" else float(len(calls))  # later calls look worse

        auto = AutoLRS(model, optimizer, total_steps=400, averaging=True, evaluate=evaluate)
        events = []
        auto.on_event(events.append)
        train(auto, model, optimizer, loader)
        (event,) = [e for e in events if isinstance(e, Averaged)]
        assert event.used == (not event.averaged > event.raw)
        if better == "raw":
            assert not event.used
        model.eval()
        assert real() == pytest.approx(calls[-1] if event.used else calls[-2])


def test_averaging_changes_no_step_of_the_training():
    runs = []
    for averaging in (False, True):
        model, optimizer, loader = build()
        auto = AutoLRS(model, optimizer, total_steps=400, averaging=averaging, decay_to=0.1)
        train(auto, model, optimizer, loader, stop=380)
        runs.append((tensors(model), auto.lr))
    assert same(runs[0][0], runs[1][0])
    assert runs[0][1] == runs[1][1]


def test_averages_survive_a_checkpoint_to_the_bit(tmp_path):
    ends = []
    for stop in (None, 30, 250):
        model, optimizer, loader = build()
        auto = AutoLRS(model, optimizer, total_steps=400, averaging=True)
        if stop:
            train(auto, model, optimizer, loader, stop=stop)
            torch.save(auto.state_dict(), tmp_path / "auto.pt")
            model, optimizer, loader = build(seed=1)
            auto = AutoLRS(model, optimizer, total_steps=400, averaging=True)
            auto.load_state_dict(torch.load(tmp_path / "auto.pt", weights_only=True))
        train(auto, model, optimizer, loader)
        ends.append(tensors(model))
    assert same(ends[0], ends[1])
    assert same(ends[0], ends[2])


def test_exchange_twice_changes_nothing():
    model, *_ = build()
    averager = Averager(model, None)
    averager.update()
    with torch.no_grad():
        model[0].weight.add_(1.0)
    before = tensors(model)
    averager.exchange()
    assert not same(tensors(model), before)
    averager.exchange()
    assert same(tensors(model), before)
