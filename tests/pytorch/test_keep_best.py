"""`keep_best` in PyTorch: an overfitting net, looks that leave no trace, checkpoints, averaged weights."""

from __future__ import annotations

import copy
import io

import pytest
import torch
from nets import PAPER, loss_of, make, net, same, shuffled, tensors, train
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import autolrs
from autolrs.core.types import Committed, Looked
from autolrs.pytorch.resume import _check_spread, _forget_best
from autolrs.run import journal

STRATEGIES = {
    "paper": PAPER,
    "horizon": {"total_steps": 300, "max_cost": 2.0},
    "horizon, averaged": {"total_steps": 300, "max_cost": 2.0, "averaging": True},
}
ALL = pytest.mark.parametrize("values", STRATEGIES.values(), ids=STRATEGIES)

_generator = torch.Generator().manual_seed(3)
HELD_OUT = (torch.randn(64, 6, generator=_generator), torch.randint(3, (64,), generator=_generator))


def validation(model):
    def evaluate():
        torch.rand(3)  # a look that draws random numbers must not move those of the training
        with torch.no_grad():
            return loss_of(model, HELD_OUT).item()

    return evaluate


def begin(values, seed=0, **more):
    """Dropout, BatchNorm and a shuffling loader."""
    model, optimizer, loader = make(seed, torch.optim.Adam)
    settings = {"keep_best": True, **values, **more}
    return autolrs.AutoLRS(model, optimizer, evaluate=validation(model), **settings), model, optimizer, loader


def saved(auto):
    """Through a file, as `weights_only` reads it."""
    file = io.BytesIO()
    torch.save(auto.state_dict(), file)
    file.seek(0)
    return torch.load(file, weights_only=True)


def optimizer_tensors(optimizer):
    return [value for state in optimizer.state_dict()["state"].values() for value in state.values()]


def overfit(**settings):
    """A wide net on sixteen noisy samples."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(16 + 400, 8, generator=generator)
    y = x[:, :1] + torch.randn(len(x), 1, generator=generator)
    few, many = (x[:16], y[:16]), (x[16:96], y[16:96])
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 1))
    optimizer = torch.optim.Adam(model.parameters())

    def evaluate():
        with torch.no_grad():
            return nn.functional.mse_loss(model(many[0]), many[1]).item()

    auto = autolrs.AutoLRS(model, optimizer, evaluate=evaluate, total_steps=400, max_cost=1.5, **settings)
    assert auto.best is None
    for batch in auto.batches(DataLoader(TensorDataset(*few), batch_size=8, shuffle=True)):
        loss = nn.functional.mse_loss(model(batch[0]), batch[1])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        auto.step(loss)
    return auto, model, optimizer, evaluate


AVERAGING = pytest.mark.parametrize("averaging", [False, True])


@AVERAGING
def test_few_noisy_samples_are_overfitted_and_the_best_state_is_had_back_exactly(averaging):
    auto, _, _, evaluate = overfit(averaging=averaging, keep_best=True)
    last = evaluate()
    assert last > 1.5 * auto.best.loss
    auto.restore_best()
    assert evaluate() == auto.best.loss


@AVERAGING
def test_by_default_such_a_run_ends_with_its_best_state(averaging):
    auto, model, optimizer, evaluate = overfit(averaging=averaging)
    assert auto.settings.keep_best == "auto" and evaluate() == auto.best.loss
    assert auto.best.step < 400 and optimizer.param_groups[0]["betas"] == (0.9, 0.999)
    _, last, _, evaluate = overfit(averaging=averaging, keep_best=False)
    assert evaluate() > 1.5 * auto.best.loss and not same(tensors(model), tensors(last))
    auto.restore_best()  # once more changes nothing
    assert auto.host.evaluate() == auto.best.loss


@ALL
def test_looks_leave_no_trace_in_the_training(values):
    ends = []
    for keep_best in (False, True):
        auto, model, optimizer, loader = begin(values, keep_best=keep_best)
        train(auto, model, optimizer, loader)
        ends.append((tensors(model), optimizer_tensors(optimizer), torch.get_rng_state(), auto.schedule))
    (weights, state, rng, schedule), looked = ends[0], ends[1]
    assert same(weights, looked[0]) and same(state, looked[1])
    assert torch.equal(rng, looked[2]) and schedule == looked[3]
    assert auto.best is not None


@ALL
def test_weights_buffers_and_optimizer_state_are_those_of_the_best_step(values):
    auto, model, optimizer, loader = begin(values)
    kept = {}

    def keep(event):
        if isinstance(event, Looked) and auto.best == event:
            weights = copy.deepcopy(model)
            if auto.settings.averaging and auto.session.command is not None:
                weights = auto.averaged_model
            kept.update(model=tensors(weights), state=copy.deepcopy(optimizer_tensors(optimizer)))

    auto.on_event(keep)
    train(auto, model, optimizer, loader)
    assert auto.best.step < auto.committed_steps
    assert not same(tensors(model), kept["model"])
    auto.restore_best()
    assert same(tensors(model), kept["model"]) and same(optimizer_tensors(optimizer), kept["state"])
    assert optimizer.param_groups[0]["betas"] == (0.9, 0.999)
    assert auto.host.evaluate() == auto.best.loss


@ALL
@pytest.mark.parametrize("stop", [89, 250])
def test_the_best_goes_through_a_state_dict(values, stop):
    auto, model, optimizer, loader = begin(values)
    train(auto, model, optimizer, loader)
    best, end = auto.best, tensors(model)
    auto, model, optimizer, loader = begin(values)
    train(auto, model, optimizer, loader, stop=stop)
    state = saved(auto)
    auto, model, optimizer, loader = begin(values, seed=1)
    auto.load_state_dict(state)
    train(auto, model, optimizer, loader)
    assert auto.best == best and same(tensors(model), end)
    auto.restore_best()
    assert auto.host.evaluate() == best.loss


@ALL
def test_the_best_survives_a_kill(values, tmp_path):
    auto, model, optimizer, loader = begin(values)
    train(auto, model, optimizer, loader)
    best, end, steps = auto.best, tensors(model), auto.raw_steps
    assert best.step < auto.committed_steps
    for stop in (5, steps // 2, steps):
        folder = tmp_path / str(stop)
        auto, model, optimizer, loader = begin(values, run_dir=folder)
        train(auto, model, optimizer, loader, stop=stop)
        if stop == steps // 2:
            auto.save_point()
        anew = not (folder / "checkpoint.pt").exists()
        model, optimizer, loader = make(0 if anew else 9, torch.optim.Adam)
        auto = autolrs.resume(folder, model, optimizer, evaluate=validation(model))
        train(auto, model, optimizer, loader)
        assert auto.best == best and same(tensors(model), end)
        assert [e for e in journal.read(folder) if isinstance(e, Looked)].count(best) >= 1
        auto.restore_best()
        assert auto.host.evaluate() == best.loss


def test_killed_between_the_last_commit_and_the_end_the_last_look_is_made_up_for(tmp_path):
    auto, model, optimizer, loader = begin(STRATEGIES["horizon"], run_dir=tmp_path)

    class KilledError(Exception):
        pass

    def kill(event):
        if isinstance(event, Looked) and event.step == 300:
            raise KilledError

    auto.on_event(kill)
    with pytest.raises(KilledError):
        train(auto, model, optimizer, loader)
    model, optimizer, loader = make(9, torch.optim.Adam)
    auto = autolrs.resume(tmp_path, model, optimizer, evaluate=validation(model))
    assert auto.done
    looks = [e for e in journal.read(tmp_path) if isinstance(e, Looked)]
    assert [look.step for look in looks[-2:]] == [300, 300] and looks[-1] == looks[-2]


def test_a_run_left_early_ends_at_its_best_and_can_go_on_from_there():
    auto, model, optimizer, loader = begin(STRATEGIES["horizon, averaged"])
    while auto.exploring or auto.committed_steps < 200:
        train(auto, model, optimizer, loader, stop=1)
    auto.restore_best()
    assert auto.host.evaluate() == auto.best.loss
    lr = optimizer.param_groups[0]["lr"]
    assert lr == auto.lr
    train(auto, model, optimizer, loader)
    assert auto.done and auto.committed_steps == 300


def test_a_state_in_shards_cannot_go_on_with_another_number_of_ranks():
    auto, *_ = begin(PAPER)
    point = {"shards": {"model/weight": []}, "live": {}, "session": {"best": 3}, "snapshots": {3: {}}}
    with pytest.raises(ValueError, match="saved by 2 ranks: `keep_best` holds a state in shards"):
        _check_spread(point, auto, "saved by 2 ranks")


def test_one_that_nobody_asked_for_is_left_behind_by_another_number_of_ranks():
    point = {"session": {"best": 3}, "snapshots": {3: {}, 4: {}}}
    assert _forget_best(point)
    assert point == {"session": {}, "snapshots": {4: {}}}
    assert not _forget_best(point)
    assert point["snapshots"] == {4: {}}


def test_without_evaluate_it_is_refused_and_nothing_is_left_behind(tmp_path):
    model, optimizer, _ = make()
    with pytest.raises(ValueError, match="`keep_best` needs `evaluate`"):
        autolrs.AutoLRS(model, optimizer, total_steps=600, keep_best=True, run_dir=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_under_algorithm_1_it_is_off_by_default_and_takes_no_memory_then():
    model, optimizer, loader = make(0, torch.optim.Adam)
    auto = autolrs.AutoLRS(model, optimizer, evaluate=validation(model), **PAPER)
    assert auto.settings.keep_best is False
    train(auto, model, optimizer, loader)
    assert auto.best is None and auto.session.tokens == []
    with pytest.raises(RuntimeError, match="`keep_best` is off"):
        auto.restore_best()


def test_the_state_that_the_averaged_weights_lose_against_can_be_the_best():
    """Validation prefers the raw weights at the end: those are in the model, and those are looked at."""
    model = net()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    real, seen = validation(model), []

    def evaluate():
        seen.append(real())
        return -float(len(seen))  # each look is better than all before it, the raw weights' than the averaged ones'

    auto = autolrs.AutoLRS(model, optimizer, total_steps=400, averaging=True, evaluate=evaluate, keep_best=True)
    train(auto, model, optimizer, shuffled())
    assert auto.best.step == 400 and auto.best.loss == -len(seen)
    end = tensors(model)
    auto.restore_best()
    assert same(tensors(model), end)
    assert seen[-1] == seen[-2] != seen[-3]


def test_commits_see_the_best_so_far():
    auto, model, optimizer, loader = begin(PAPER)
    seen = []
    auto.on_commit(lambda event: seen.append((event, auto.best)))
    train(auto, model, optimizer, loader)
    assert all(isinstance(event, Committed) and best is not None for event, best in seen)
