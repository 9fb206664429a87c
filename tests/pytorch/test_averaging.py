"""Averaging inside the training: the formula, what it leaves alone, the hand-over, probes, failures and checkpoints."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from torch import nn

from autolrs import AutoLRS
from autolrs.core.averaging import PLAIN_SHARPNESS, SHARPNESS, share
from autolrs.core.types import Averaged, Committed, Failed
from autolrs.pytorch.averaging import Averager

X = torch.randn(256, 6, generator=torch.Generator().manual_seed(0))
Y = X[:, :3].argmax(1)


def adam(parameters):
    return torch.optim.Adam(parameters, lr=1e-3)


def build(seed=0, optimizer=adam):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))
    data = torch.utils.data.TensorDataset(X, Y)
    return model, optimizer(model.parameters()), torch.utils.data.DataLoader(data, batch_size=16)


def train(auto, model, optimizer, loader, stop=None, spoil=None):
    for n, (x, y) in enumerate(auto.batches(loader), start=1):
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        auto.step(loss * float("nan") if n == spoil else loss)
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


def test_a_group_without_parameters_does_no_harm():
    model, _, loader = build()
    optimizer = torch.optim.Adam([{"params": model.parameters()}, {"params": []}], lr=1e-3)
    auto = AutoLRS(model, optimizer, total_steps=30, averaging=True)
    train(auto, model, optimizer, loader)
    assert auto.done and [group["betas"][0] for group in optimizer.param_groups] == [0.9, 0.9]


def test_the_model_itself_holds_the_average_inside_averaged_and_nowhere_else():
    model, optimizer, loader = build()
    auto = AutoLRS(model, optimizer, total_steps=30, averaging=True)
    before = tensors(model)
    with auto.averaged():
        assert same(tensors(model), before), "there is none yet"
    train(auto, model, optimizer, loader, stop=20)
    trained = tensors(model)
    with auto.averaged(), auto.averaged():
        assert same(tensors(model), tensors(auto.averaged_model))
        assert not same(tensors(model), trained)
    assert same(tensors(model), trained)
    with pytest.raises(ZeroDivisionError), auto.averaged():
        raise ZeroDivisionError
    assert same(tensors(model), trained)


def test_a_run_that_is_left_early_can_keep_its_average():
    for put in (True, False):
        model, optimizer, loader = build()
        auto = AutoLRS(model, optimizer, total_steps=30, averaging=True)
        train(auto, model, optimizer, loader, stop=20)
        wanted = tensors(auto.averaged_model) if put else tensors(model)
        auto.leave_average(put=put)
        assert same(tensors(model), wanted)
        assert optimizer.param_groups[0]["betas"][0] == 0.9


def reference(steps, b, scale):
    """x, y of Schedule-Free's three lines, for a z that moves by `scale` times the optimizer's steps."""
    z = x = y = steps[0]
    for t, step in enumerate(steps[1:], start=1):
        z = z + scale * step
        c = (SHARPNESS + 1) / (t + SHARPNESS + 1)
        x = x + c * (z - x)
        y = (1 - b) * z + b * x
    return x, y


@pytest.mark.parametrize(
    ("make", "momentum", "scale"),
    [
        (adam, 0.9, 1.0),
        (lambda p: torch.optim.RMSprop(p, momentum=0.75), 0.75, 2.0),
        (lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.99), 0.99, 10.0),
        (lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.75, nesterov=True), 0.75, 2.0),
        (lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.75, dampening=0.5), 0.75, 2.0),
    ],
)
def test_the_average_follows_the_three_lines(make, momentum, scale):
    model = nn.Linear(1, 1, bias=False).double()
    averager = Averager(model, make(model.parameters()))
    steps = torch.randn(50, dtype=torch.float64).tolist()
    with torch.no_grad():
        model.weight.zero_()
        for step in steps:
            model.weight.add_(step)
            averager.update()
    x, y = reference(steps, share(momentum), scale)
    assert model.weight.item() == pytest.approx(y)
    with averager.averaged():
        assert model.weight.item() == pytest.approx(x)
    assert model.weight.item() == pytest.approx(y)


@pytest.mark.parametrize("make", [torch.optim.Rprop, torch.optim.SGD, lambda p: torch.optim.Adam(p, betas=(0.0, 0.9))])
def test_without_a_momentum_to_share_the_training_is_not_touched(make):
    model = nn.Linear(1, 1, bias=False)
    optimizer = make(model.parameters())
    groups = copy.deepcopy([{k: v for k, v in g.items() if k != "params"} for g in optimizer.param_groups])
    averager = Averager(model, optimizer)
    expected = 0.0
    for n in range(200):
        with torch.no_grad():
            model.weight.fill_(float(n))
        averager.update()
        assert model.weight.item() == n
        expected += (PLAIN_SHARPNESS + 1) / (n + PLAIN_SHARPNESS + 1) * (n - expected)
    assert averager.model().weight.item() == pytest.approx(expected, rel=1e-5)
    assert [{k: v for k, v in g.items() if k != "params"} for g in optimizer.param_groups] == groups


@pytest.mark.parametrize("make", [adam, lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9)])
def test_a_parameter_that_does_not_move_stays_to_the_bit(make):
    model = nn.Linear(3, 3)
    averager = Averager(model, make(model.parameters()))
    bias = model.bias.detach().clone()
    for _ in range(300):
        with torch.no_grad():
            model.weight.add_(torch.randn(3, 3))
        averager.update()
    assert torch.equal(model.bias, bias)
    with averager.averaged():
        assert torch.equal(model.bias, bias)


def test_momentum_is_the_users_in_probes_half_in_the_run_and_the_users_again_after_it():
    for make, momentum in (
        (adam, lambda group: group["betas"][0]),
        (lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.8), lambda group: group["momentum"]),
    ):
        model, optimizer, loader = build(optimizer=make)
        before = momentum(optimizer.param_groups[0])
        auto = AutoLRS(model, optimizer, total_steps=400, averaging=True)
        seen = {True: set(), False: set()}

        def note(*_, seen=seen, auto=auto, momentum=momentum, optimizer=optimizer):
            if auto.exploring or auto.committed_steps:
                seen[auto.exploring].add(momentum(optimizer.param_groups[0]))

        optimizer.register_step_pre_hook(note)
        train(auto, model, optimizer, loader)
        assert seen == {True: {before}, False: {share(before)}}
        assert momentum(optimizer.param_groups[0]) == before


def test_the_search_is_the_same_with_averaging_and_without():
    peaks = []
    for averaging in (False, True):
        model, optimizer, loader = build()
        shape = {"horizon_shift": 1.0, "hold_until": 0.5, "decay_to": 0.1, "warmup_fraction": 0.05}
        auto = AutoLRS(model, optimizer, total_steps=400, averaging=averaging, **shape)
        train(auto, model, optimizer, loader)
        peaks.append(auto.schedule.segments)
    assert peaks[0] == peaks[1]


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
    train(auto, model, optimizer, loader)
    assert same(tensors(auto.averaged_model), tensors(model))


def test_without_averaging_there_is_no_averaged_model():
    model, optimizer, _ = build()
    with pytest.raises(RuntimeError, match="averaging"):
        AutoLRS(model, optimizer, total_steps=400, averaging=False).averaged_model  # noqa: B018


@pytest.mark.parametrize(
    ("losses", "used"),  # averaged weights are asked about first
    [
        ((1.0, 1.5), True),
        ((1.0, 0.996), True),  # ahead by less than chance
        ((1.0, 0.994), False),
        ((-1.0, -1.004), True),
        ((-1.0, -1.006), False),
        ((0.0, -1e-9), False),
        ((math.nan, 1.0), False),
        ((1.0, math.nan), True),
        ((math.inf, math.inf), True),
    ],
)
def test_model_is_given_the_averaged_weights_unless_the_others_are_better_by_more_than_chance(losses, used):
    model, optimizer, loader = build()
    real = validation(model)
    calls, answers = [], list(losses)

    def evaluate():
        calls.append(real())
        return answers.pop(0) if auto.committed_steps == 400 else calls[-1]

    auto = AutoLRS(model, optimizer, total_steps=400, averaging=True, evaluate=evaluate, keep_best=False)
    events = []
    auto.on_event(events.append)
    train(auto, model, optimizer, loader)
    (event,) = [e for e in events if isinstance(e, Averaged)]
    assert event.used == used and not answers
    model.eval()
    assert real() == pytest.approx(calls[-2] if used else calls[-1])
    assert calls[-2] != calls[-1]


def test_a_stretch_that_failed_is_undone_in_the_average_too():
    model, optimizer, loader = build()
    auto = AutoLRS(model, optimizer, total_steps=2000, averaging=True)
    states = {}

    def keep(event):
        if isinstance(event, (Committed, Failed)) and Failed not in states:  # the last one before it, and it
            states[type(event)] = copy.deepcopy(auto._averager.state_dict())

    auto.on_event(keep)
    train(auto, model, optimizer, loader, stop=2320, spoil=1800)
    assert states[Committed]["steps"] == states[Failed]["steps"] > 1000
    assert same(states[Committed]["x"], states[Failed]["x"])
    assert same(states[Committed]["v"], states[Failed]["v"])


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
        ends.append((tensors(model), optimizer.param_groups[0]["betas"]))
    assert same(ends[0][0], ends[1][0])
    assert same(ends[0][0], ends[2][0])
    assert {betas for _, betas in ends} == {(0.9, 0.999)}


def test_an_extension_after_the_end_averages_anew():
    model, optimizer, loader = build()
    auto = AutoLRS(model, optimizer, total_steps=400, averaging=True)
    train(auto, model, optimizer, loader)
    auto.extend(500)
    train(auto, model, optimizer, loader)
    assert auto.committed_steps == 500
    assert optimizer.param_groups[0]["betas"] == (0.9, 0.999)
    assert same(tensors(auto.averaged_model), tensors(model))


def test_groups_added_during_the_run_are_averaged():
    model = nn.Linear(2, 2)
    late = nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    averager = Averager(model, optimizer)
    averager.update()
    optimizer.add_param_group({"params": [late]})
    for step in (1.0, 1.0, 1.0):
        with torch.no_grad():
            late.add_(step)
        averager.update()
    assert optimizer.param_groups[1]["momentum"] == pytest.approx(share(0.9))
    assert late.item() > 3.0  # its steps are lengthened as momentum did
    averager.finish(average=True)
    assert [group["momentum"] for group in optimizer.param_groups] == [0.9, 0.9]


def test_half_precision_weights_have_an_average_in_single_precision():
    model = nn.Linear(4, 1).to(torch.bfloat16)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    averager = Averager(model, optimizer)
    features = X[:, :4].to(torch.bfloat16)
    losses = []
    for _ in range(200):
        loss = nn.functional.mse_loss(model(features), features.sum(1, keepdim=True))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        averager.update()
        losses.append(loss.item())
    assert {tensor.dtype for tensor in averager.state_dict()["x"]} == {torch.float32}
    assert model.weight.dtype == torch.bfloat16
    assert losses[-1] < 0.01 * losses[0]
