"""Every optimizer goes through a whole run, ends where a plain loop with the found schedule ends, and resumes."""

import io

import prodigyopt
import pytest
import schedulefree
import torch
from nets import PAPER, X, Y, auto_for, bare, loss_of, make, net, same, shuffled, tensors, train

import autolrs


class SignMomentum(torch.optim.Optimizer):
    """An optimizer of a user's own: tensors in its state, a number in its groups that every step changes."""

    def __init__(self, params, lr, decay=0.9):
        super().__init__(params, {"lr": lr, "decay": decay, "taken": 0})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            group["taken"] += 1
            for p in group["params"]:
                state = self.state[p]
                if not state:
                    state["mean"] = torch.zeros_like(p)
                state["mean"].mul_(group["decay"]).add_(p.grad)
                p.sub_(group["lr"] / group["taken"] ** 0.5 * state["mean"].sign())


OPTIMIZERS = {
    "sgd": (torch.optim.SGD, {"momentum": 0.0}),
    "momentum": (torch.optim.SGD, {"momentum": 0.9}),
    "nesterov": (torch.optim.SGD, {"momentum": 0.9, "nesterov": True, "weight_decay": 1e-3}),
    "sgd foreach": (torch.optim.SGD, {"momentum": 0.9, "foreach": True}),
    "sgd fused": (torch.optim.SGD, {"momentum": 0.9, "fused": True}),
    "adam": (torch.optim.Adam, {}),
    "adam amsgrad": (torch.optim.Adam, {"amsgrad": True}),
    "adam foreach": (torch.optim.Adam, {"foreach": True}),
    "adam fused": (torch.optim.Adam, {"fused": True}),
    "adam tensor lr": (torch.optim.Adam, {"lr": torch.tensor(0.01)}),
    "adam fused tensor lr": (torch.optim.Adam, {"lr": torch.tensor(0.01), "fused": True}),
    "adamw": (torch.optim.AdamW, {"weight_decay": 0.1}),
    "adagrad": (torch.optim.Adagrad, {}),
    "rmsprop": (torch.optim.RMSprop, {"momentum": 0.5, "centered": True}),
    "adadelta": (torch.optim.Adadelta, {}),
    "schedule-free adamw": (schedulefree.AdamWScheduleFree, {"warmup_steps": 5}),
    "schedule-free sgd": (schedulefree.SGDScheduleFree, {}),
    "prodigy": (prodigyopt.Prodigy, {"lr": 1.0}),
    "custom": (SignMomentum, {}),
}


def fresh(name):
    kind, options = OPTIMIZERS[name]
    made = make(kind=kind, **{k: v.clone() if isinstance(v, torch.Tensor) else v for k, v in options.items()})
    if name.startswith("schedule-free"):
        made[1].train()
    return made


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_run_with_replay_equals_a_plain_loop_with_its_schedule(name):
    model, optimizer, loader = fresh(name)
    auto = auto_for(model, optimizer, replay=True)
    train(auto, model, optimizer, loader)
    assert auto.committed_steps == 60 and auto.raw_steps == 105
    again, again_optimizer, again_loader = fresh(name)
    bare(again, again_optimizer, again_loader, auto.schedule)
    assert same(tensors(model), tensors(again))


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_run_goes_on_exactly_from_the_middle_of_a_probe(name):
    model, optimizer, loader = fresh(name)
    auto = auto_for(model, optimizer)
    train(auto, model, optimizer, loader, stop=43)
    assert auto.exploring
    file = io.BytesIO()
    torch.save(auto.state_dict(), file)
    train(auto, model, optimizer, loader)
    again, again_optimizer, again_loader = fresh(name)
    resumed = auto_for(again, again_optimizer)
    file.seek(0)
    resumed.load_state_dict(torch.load(file, weights_only=True))
    train(resumed, again, again_optimizer, again_loader)
    assert resumed.schedule == auto.schedule
    assert same(tensors(model), tensors(again))


def test_a_tensor_lr_stays_the_same_object_all_along():
    lr = torch.tensor(0.01)
    model, optimizer, loader = make(kind=torch.optim.Adam, lr=lr)
    auto = auto_for(model, optimizer)
    for batch in auto.batches(loader):
        assert optimizer.param_groups[0]["lr"] is lr
        assert lr.item() == pytest.approx(auto.lr, rel=1e-6)
        optimizer.zero_grad()
        loss = loss_of(model, batch)
        loss.backward()
        optimizer.step()
        auto.step(loss)


def lbfgs():
    model = net()
    return model, torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=3, history_size=4)


def train_with_closures(auto, model, optimizer, stop=None):
    for steps, batch in enumerate(auto.batches(shuffled()), start=1):

        def closure(batch=batch):
            optimizer.zero_grad()
            loss = loss_of(model, batch)
            loss.backward()
            return loss

        auto.step(optimizer.step(closure))
        if steps == stop:
            break


@pytest.mark.parametrize("stop", [3, 18, 30])
def test_closures_of_lbfgs(stop):
    settings = {"total_steps": 20, "max_stage_steps": 20, "n_probes": 2}
    model, optimizer = lbfgs()
    auto = auto_for(model, optimizer, **settings)
    train_with_closures(auto, model, optimizer)
    assert auto.committed_steps == 20
    half, half_optimizer = lbfgs()
    stopped = auto_for(half, half_optimizer, **settings)
    train_with_closures(stopped, half, half_optimizer, stop)
    state = stopped.state_dict()
    rest, rest_optimizer = lbfgs()
    resumed = auto_for(rest, rest_optimizer, **settings)
    resumed.load_state_dict(state)
    train_with_closures(resumed, rest, rest_optimizer)
    assert resumed.schedule == auto.schedule
    assert same(tensors(model), tensors(rest))


def test_groups_keep_their_ratio_through_a_run():
    model = net()
    groups = [{"params": model[0].parameters()}, {"params": model[1:].parameters(), "lr": 0.001}]
    optimizer = torch.optim.AdamW(groups, lr=0.01)
    auto = auto_for(model, optimizer, warmup_steps=10)
    for batch in auto.batches(shuffled()):
        lrs = [group["lr"] for group in optimizer.param_groups]
        assert lrs[0] == auto.lr
        assert lrs[1] == pytest.approx(lrs[0] / 10)
        optimizer.zero_grad()
        loss = loss_of(model, batch)
        loss.backward()
        optimizer.step()
        auto.step(loss)


def test_several_steps_of_accumulated_gradients_count_once():
    model, optimizer, loader = make()
    auto = auto_for(model, optimizer, replay=True)
    calls = 0
    for i, batch in enumerate(auto.batches(loader)):
        if i % 3 == 0:
            optimizer.zero_grad()
        loss = loss_of(model, batch) / 3
        loss.backward()
        if i % 3 == 2:
            optimizer.step()
            auto.step(loss * 3)
            calls += 1
    assert auto.raw_steps == calls == 105 and auto.committed_steps == 60
    again, optimizer, loader = make()
    scheduler = auto.schedule.to_torch(optimizer)
    done, i = 0, 0
    while done < 60:
        for batch in loader:
            if i % 3 == 0:
                optimizer.zero_grad()
            (loss_of(again, batch) / 3).backward()
            if i % 3 == 2:
                optimizer.step()
                scheduler.step()
                done += 1
            i += 1
            if done == 60:
                break
    assert same(tensors(model), tensors(again))


@pytest.mark.parametrize("in_place", [False, True])
def test_a_compiled_model_trains_like_a_plain_one(in_place):
    ends = []
    for compile_it in (False, True):
        model, optimizer, loader = make()
        trained = model
        if compile_it and in_place:
            model.compile(backend="eager")
        elif compile_it:
            trained = torch.compile(model, backend="eager")
        auto = auto_for(trained, optimizer)
        train(auto, trained, optimizer, loader)
        ends.append((tensors(model), auto.schedule))
    assert ends[0][1] == ends[1][1]
    assert same(ends[0][0], ends[1][0])


def test_a_users_own_step_hooks_keep_working():
    model, optimizer, loader = make()
    calls = []
    optimizer.register_step_pre_hook(lambda *_: calls.append("before"))
    auto = auto_for(model, optimizer)
    optimizer.register_step_pre_hook(lambda *_: calls.append("after"))
    train(auto, model, optimizer, loader)
    assert len(calls) == 2 * 105
    assert len(optimizer._optimizer_step_pre_hooks) == 2  # ours is gone


def test_a_parameter_that_only_the_optimizer_holds_is_trained_and_resumed():
    def fresh():
        model = net()
        scale = torch.nn.Parameter(torch.ones(1))
        return model, scale, torch.optim.SGD([*model.parameters(), scale], lr=0.01)

    def run(auto, model, scale, optimizer, stop=None):
        for i, (x, y) in enumerate(auto.batches(shuffled()), start=1):
            loss = torch.nn.functional.cross_entropy(model(x) * scale, y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            auto.step(loss)
            if i == stop:
                break

    model, scale, optimizer = fresh()
    auto = auto_for(model, optimizer)
    run(auto, model, scale, optimizer)
    half, half_scale, half_optimizer = fresh()
    stopped = auto_for(half, half_optimizer)
    run(stopped, half, half_scale, half_optimizer, stop=44)
    state = stopped.state_dict()
    rest, rest_scale, rest_optimizer = fresh()
    resumed = auto_for(rest, rest_optimizer)
    resumed.load_state_dict(state)
    run(resumed, rest, rest_scale, rest_optimizer)
    assert scale.item() != 1.0
    assert torch.equal(scale, rest_scale)
    assert resumed.schedule == auto.schedule


def test_horizon_trains_the_whole_budget_at_the_schedule_it_found():
    model, optimizer, loader = make(kind=torch.optim.AdamW)
    auto = autolrs.AutoLRS(model, optimizer, total_steps=400, lr=(1e-4, 1e-1), mini_fraction=0.05, averaging=False)
    train(auto, model, optimizer, loader)
    assert auto.committed_steps == 400 == auto.schedule.total_steps
    again, optimizer, loader = make(kind=torch.optim.AdamW)
    bare(again, optimizer, loader, auto.schedule)
    assert same(tensors(model), tensors(again))


def test_the_paper_run_lowers_the_loss():
    model, optimizer, loader = make()
    with torch.no_grad():
        before = loss_of(model.eval(), (X, Y)).item()
    model.train()
    train(auto_for(model, optimizer), model, optimizer, loader)
    with torch.no_grad():
        assert loss_of(model.eval(), (X, Y)).item() < 0.7 * before
    assert PAPER["total_steps"] == 60


def test_evaluate_sees_the_weights_that_schedule_free_means_and_leaves_those_it_trains():
    model, optimizer, loader = fresh("schedule-free adamw")
    seen = []

    def evaluate():
        seen.append((optimizer.param_groups[0]["train_mode"], tensors(model)))
        return loss_of(model, (X, Y)).item()

    auto = auto_for(model, optimizer, evaluate=evaluate, eval_every=5, replay=True)
    train(auto, model, optimizer, loader, stop=48)
    before = tensors(model)
    auto.host.evaluate()
    assert same(before, tensors(model)) and optimizer.param_groups[0]["train_mode"]
    optimizer.eval()
    assert not seen[-1][0] and same(seen[-1][1], tensors(model)) and not same(seen[-1][1], before)
    optimizer.train()
    model, optimizer, loader = fresh("schedule-free adamw")
    train(auto_for(model, optimizer, evaluate=evaluate, eval_every=5, replay=True), model, optimizer, loader)
    assert len(seen) > 6


def test_schedule_free_gets_an_lr_and_neither_decay_nor_a_second_average():
    schedulefree = pytest.importorskip("schedulefree")
    model = net()
    optimizer = schedulefree.AdamWScheduleFree(model.parameters(), lr=0.01)
    optimizer.train()
    auto = autolrs.AutoLRS(model, optimizer, total_steps=1200)
    assert not auto.settings.averaging
    train(auto, model, optimizer, shuffled())
    lrs = auto.schedule.lrs()
    peak = lrs.max()
    assert auto.done and (lrs[100:] == peak).all() and lrs[0] < peak


def test_runs_long_enough_are_averaged_by_default_and_short_ones_are_not():
    model, optimizer, _ = make()
    assert autolrs.AutoLRS(model, optimizer, total_steps=250).settings.averaging
    model, optimizer, _ = make()
    assert not autolrs.AutoLRS(model, optimizer, total_steps=249).settings.averaging
    model, optimizer, _ = make()
    assert not autolrs.AutoLRS(model, optimizer, **PAPER).settings.averaging
