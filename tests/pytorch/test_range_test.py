"""The range test finds an interval and leaves no trace, also when it fails."""

import math
import random

import numpy as np
import pytest
import torch
from nets import X, Y, loss_of, make, same, shuffled, tensors, train_step

import autolrs
from autolrs.core.types import Noted, Ranged

BATCH = (X, Y)


def traces(model, optimizer):
    """All that must be as before."""
    gradients = [None if p.grad is None else p.grad.clone() for p in model.parameters()]
    state = [v.clone() for s in optimizer.state.values() for v in s.values()]
    groups = [{k: v for k, v in group.items() if k != "params"} for group in optimizer.param_groups]
    return {
        "weights": tensors(model),
        "modes": [module.training for module in model.modules()],
        "gradients": gradients,
        "state": state,
        "groups": groups,
        "torch": torch.get_rng_state().tolist(),
        "numpy": np.random.get_state()[1].tolist(),  # noqa: NPY002 - the user's
        "python": random.getstate(),
    }


def assert_same(a, b):
    for key in a:
        if key in ("weights", "state"):
            assert same(a[key], b[key]), key
        elif key == "gradients":
            pairs = list(zip(a[key], b[key], strict=True))
            assert all((x is None) == (y is None) and (x is None or torch.equal(x, y)) for x, y in pairs)
        else:
            assert a[key] == b[key], key


def drawing_step(model, optimizer):
    def step():
        random.random()
        np.random.rand()  # noqa: NPY002 - the user's
        return train_step(model, optimizer, BATCH)

    return step


@pytest.mark.parametrize("warm", [False, True])
@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.Adam])
def test_it_leaves_no_trace(kind, warm):
    model, optimizer, _ = make(kind=kind)
    if warm:
        train_step(model, optimizer, BATCH)
    before = traces(model, optimizer)
    found = autolrs.range_test(model, optimizer, drawing_step(model, optimizer))
    assert_same(before, traces(model, optimizer))
    assert 0 < found.lr_min < found.lr_max < 10
    assert found.interval == (found.lr_min, found.lr_max)
    assert len(found.lrs) == len(found.losses) <= 100


def test_it_leaves_no_trace_when_the_step_raises():
    model, optimizer, _ = make(kind=torch.optim.Adam)
    train_step(model, optimizer, BATCH)
    before = traces(model, optimizer)
    step, calls = drawing_step(model, optimizer), []

    def failing():
        calls.append(None)
        if len(calls) == 6:
            raise OSError("no data")
        return step()

    with pytest.raises(OSError, match="no data"):
        autolrs.range_test(model, optimizer, failing)
    assert_same(before, traces(model, optimizer))


def test_a_loader_with_a_loss_function():
    model, optimizer, loader = make()
    before = traces(model, optimizer)
    found = autolrs.range_test(model, optimizer, loader, lambda batch: loss_of(model, batch), steps=30)
    assert_same(before, traces(model, optimizer))
    assert 1e-5 < found.lr_max <= 10


def test_a_loader_shorter_than_the_test_is_read_again():
    model, optimizer, _ = make()
    found = autolrs.range_test(
        model, optimizer, [BATCH], lambda batch: loss_of(model, batch), lr=(1e-6, 1e-3), steps=20
    )
    assert len(found.losses) == 20


def test_it_stops_once_the_loss_explodes():
    model, optimizer, _ = make(momentum=0.0)
    weights = tensors(model)

    def step():
        return train_step(model, optimizer, BATCH) * (math.inf if optimizer.param_groups[0]["lr"] > 0.01 else 1)

    found = autolrs.range_test(model, optimizer, step)
    assert len(found.losses) < 100 and found.lrs[-1] > 0.01
    assert all(map(math.isfinite, found.losses[:-1]))
    assert same(weights, tensors(model))


def test_a_loss_that_never_falls_gives_a_guess_and_says_so():
    model, optimizer, _ = make(lr=0.02)
    found = autolrs.range_test(model, optimizer, lambda: math.nan)
    assert found.interval == pytest.approx((0.0002, 0.2))
    assert "no fall of the loss" in found.note and "0.02" in found.note


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"lr": (1.0, 0.1)}, ValueError, r"`lr` must be 0 < min < max, both finite, got \(1\.0, 0\.1\)"),
        ({"lr": (0.0, 0.1)}, ValueError, r"`lr` must be 0 < min < max"),
        ({"lr": (math.nan, 0.1)}, ValueError, r"`lr` must be 0 < min < max"),
        ({"steps": 7}, ValueError, "`steps` must be at least 8, got 7"),
        ({"data": [BATCH]}, TypeError, "`data` must be a function that does one training step, or a loader together"),
        ({"data": lambda: None}, TypeError, "the loss must be a number or a Tensor with one value, got NoneType"),
        ({"data": [], "loss_fn": lambda batch: batch}, ValueError, "the loader gave no batch"),
    ],
)
def test_bad_input_is_refused_and_leaves_no_trace(change, error, message):
    model, optimizer, _ = make()
    before = traces(model, optimizer)
    with pytest.raises(error, match=message):
        autolrs.range_test(model, optimizer, **{"data": lambda: 1.0, **change})
    assert_same(before, traces(model, optimizer))


SEARCHED = {"strategy": "paper", "total_steps": 40, "stage_steps": 20, "max_stage_steps": 20, "probe_fraction": 0.25}


def run(auto, model, optimizer, loader, corrupt=lambda loss: loss):
    events = []
    auto.on_event(events.append)
    for batch in auto.batches(loader):
        auto.step(corrupt(train_step(model, optimizer, batch)))
    return events


@pytest.mark.parametrize("replay", [False, True])
def test_lr_auto_searches_the_interval_it_found(replay):
    model, optimizer, loader = make()
    auto = autolrs.AutoLRS(model, optimizer, lr="auto", n_probes=2, replay=replay, **SEARCHED)
    assert auto.exploring and auto.lr == pytest.approx(1e-6)
    events = run(auto, model, optimizer, loader)
    (found,) = [event for event in events if isinstance(event, Ranged)]
    assert all(found.lr_min <= segment.lr_start <= found.lr_max for segment in auto.schedule.segments)
    assert auto.committed_steps == 40


def test_lr_auto_on_data_that_cannot_be_learned_falls_back_and_never_crashes():
    model, optimizer, _ = make(lr=0.02)
    loader = shuffled(torch.utils.data.TensorDataset(X * math.nan, Y))
    auto = autolrs.AutoLRS(model, optimizer, lr="auto", n_probes=2, **SEARCHED)
    events = run(auto, model, optimizer, loader)
    (found,) = [event for event in events if isinstance(event, Ranged)]
    assert (found.lr_min, found.lr_max) == pytest.approx((0.0002, 0.2))
    notes = [event.message for event in events if isinstance(event, Noted)]
    assert any("2 probes of stage 0 diverged: keeping the interval's lowest LR" in note for note in notes)
    assert auto.done and {segment.lr_start for segment in auto.schedule.segments} == {found.lr_min}
