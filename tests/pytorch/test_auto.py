"""AutoLRS: the contract's whole surface, and what happens when the user or the training does something wrong."""

import math
import pickle
import warnings

import numpy as np
import pytest
import torch
from nets import PAPER, X, Y, auto_for, bare, loss_of, make, net, same, tensors, train, train_step
from torch import nn

import autolrs
from autolrs.core import reference
from autolrs.core.strategies.paper import Paper
from autolrs.core.types import Aborted, Committed, Finished, Noted, Probed
from autolrs.pytorch import auto as auto_module

BATCH = (X[:8], Y[:8])


def steps(auto, model, optimizer, n, batch=BATCH):
    return [auto.step(train_step(model, optimizer, batch)) for _ in range(n)]


def recorded(auto):
    events = []
    auto.on_event(events.append)
    return events


# The contract


def test_the_readme_loop_commits_total_steps():
    model, optimizer, loader = make()
    auto = auto_for(model, optimizer)
    infos = train(auto, model, optimizer, loader)
    assert auto.done and not auto.exploring
    assert auto.committed_steps == auto.schedule.total_steps == 60
    assert auto.raw_steps == len(infos) == 3 * 5 + 20 + 3 * 10 + 40
    assert all(1e-3 * 0.999 <= s.lr_start <= 1e-1 * 1.001 for s in auto.schedule.segments)
    assert list(auto.batches(loader)) == []


def test_step_info_tells_what_the_step_was():
    model, optimizer, loader = make()
    auto = auto_for(model, optimizer)
    lrs = []
    for batch in auto.batches(loader):
        expected = (auto.lr, auto.exploring, optimizer.param_groups[0]["lr"])
        info = auto.step(train_step(model, optimizer, batch))
        assert (info.lr, info.exploring, info.lr) == expected
        assert (info.committed_steps, info.raw_steps, info.done) == (auto.committed_steps, auto.raw_steps, auto.done)
        assert info.counted
        lrs.append(info)
    committed = [info.lr for info in lrs if not info.exploring]
    assert committed == [auto.schedule.lr_at(i) for i in range(60)]
    assert [info.raw_steps for info in lrs] == list(range(1, 106))
    assert [info.committed_steps for info in lrs if not info.exploring] == list(range(1, 61))
    assert lrs[-1].done and not lrs[-2].done


def test_it_commits_what_algorithm_1_commits():
    model, optimizer, _ = make()
    loader = [(X[i : i + 8], Y[i : i + 8]) for i in range(0, 48, 8)]
    auto = auto_for(model, optimizer, evaluate=lambda: loss_of(model, (X, Y)))
    train(auto, model, optimizer, loader)

    model, optimizer, _ = make()
    host = auto_for(model, optimizer, evaluate=lambda: loss_of(model, (X, Y))).host
    optimizer._optimizer_step_pre_hooks.clear()
    data = iter(loader * 20)

    class Trainer:
        snapshot, restore, set_lr, evaluate = host.snapshot, host.restore, host.set_lr, host.evaluate

        def step(self):
            return train_step(model, optimizer, next(data)).item()

    expected = reference.run(autolrs.Settings(**PAPER), Trainer(), validation=True)
    assert auto.schedule == expected


def test_step_alone_in_a_loop_of_ones_own():
    model, optimizer, _ = make()
    auto = auto_for(model, optimizer)
    while not auto.done:
        steps(auto, model, optimizer, 1)
    assert auto.committed_steps == 60


@pytest.mark.parametrize("of", [float, lambda x: torch.tensor(x), lambda x: torch.tensor([x]), np.float32, np.float64])
def test_the_loss_may_be_a_tensor_or_a_number(of):
    model, optimizer, _ = make()
    auto = auto_for(model, optimizer)
    while not auto.done:
        auto.step(of(train_step(model, optimizer, BATCH).item()))
    assert auto.committed_steps == 60


@pytest.mark.parametrize("loss", [torch.ones(2), None, "a lot", [1.0], torch.ones(0)])
def test_a_loss_of_the_wrong_type_or_shape_is_refused_and_not_counted(loss):
    model, optimizer, _ = make()
    auto = auto_for(model, optimizer)
    train_step(model, optimizer, BATCH)
    with pytest.raises(TypeError, match="`loss` must be a number or a Tensor with one value, got"):
        auto.step(loss)
    assert auto.raw_steps == 0
    auto.step(1.0)
    assert auto.raw_steps == 1


def test_a_loss_on_a_device_is_not_read_before_the_segment_ends():
    model, optimizer, _ = make()
    auto = auto_for(model, optimizer)
    with pytest.raises(TypeError, match="of shape"):
        auto.step(torch.ones(3, device="meta"))
    auto.step(torch.ones(1, device="meta"))  # reading it would raise
    auto.step(torch.ones((), device="meta"))
    assert auto.raw_steps == 2


def test_a_loss_of_the_wrong_shape_is_refused_at_the_next_boundary_at_the_latest():
    model, optimizer, _ = make()
    auto = auto_for(model, optimizer)
    with pytest.raises(TypeError, match="of shape"):
        for size in (1, *[3] * 60):
            auto.step(torch.ones(size))


def test_commit_callbacks_get_every_stretch():
    model, optimizer, loader = make()
    auto = auto_for(model, optimizer, warmup_steps=5)
    seen = []
    auto.on_commit(lambda event: seen.append((event, auto.committed_steps)))
    train(auto, model, optimizer, loader)
    assert all(isinstance(event, Committed) for event, _ in seen)
    assert [(event.stage, event.steps) for event, _ in seen] == [(-1, 5), (0, 20), (1, 35)]
    assert [committed for _, committed in seen] == [5, 25, 60]


def test_a_run_can_be_saved_from_a_commit_callback():
    model, optimizer, loader = make()
    auto = auto_for(model, optimizer, replay=True)
    states = []
    auto.on_commit(lambda event: states.append(auto.state_dict()))
    train(auto, model, optimizer, loader)
    again, optimizer, loader = make(seed=4)
    resumed = auto_for(again, optimizer, replay=True)
    resumed.load_state_dict(states[0])
    assert resumed.committed_steps == 20
    train(resumed, again, optimizer, loader)
    assert resumed.schedule == auto.schedule and same(tensors(again), tensors(model))


def test_warm_up_is_linear_and_counted():
    model, optimizer, loader = make()
    auto = auto_for(model, optimizer, warmup_steps=10, warmup_lr=0.05)
    assert not auto.exploring
    infos = train(auto, model, optimizer, loader)
    warm = [info.lr for info in infos[:10]]
    assert warm == [auto.schedule.lr_at(i) for i in range(10)]
    assert np.allclose(np.diff(warm), warm[1] - warm[0]) and 0 < warm[0] < warm[-1] < 0.05
    assert auto.committed_steps == auto.schedule.total_steps == 60


def test_the_practical_preset_runs():
    model, optimizer, loader = make()
    auto = auto_for(model, optimizer, preset="practical", total_steps=100)
    train(auto, model, optimizer, loader)
    assert auto.committed_steps == 100
    again, optimizer, loader = make()
    bare(again, optimizer, loader, auto.schedule)
    assert same(tensors(model), tensors(again))


def test_without_total_steps_it_goes_on_until_the_loop_is_left():
    model, optimizer, loader = make()
    auto = auto_for(model, optimizer, total_steps=None)
    for batch in auto.batches(loader):
        auto.step(train_step(model, optimizer, batch))
        if auto.committed_steps >= 130:
            break
    assert not auto.done
    assert [segment.steps for segment in auto.schedule.segments] == [20, 40, 40]


def test_a_strategy_object_can_be_given():
    class Named(Paper):
        name = "paper"

    model, optimizer, loader = make()
    auto = auto_for(model, optimizer, strategy=Named())
    train(auto, model, optimizer, loader)
    assert auto.committed_steps == 60


def test_rollback_puts_the_model_back_to_where_the_probe_began():
    model, optimizer, _ = make()
    auto = auto_for(model, optimizer)
    start = tensors(model)
    steps(auto, model, optimizer, 3)
    assert not same(tensors(model), start)
    auto.rollback()
    assert same(tensors(model), start) and auto.raw_steps == 0
    steps(auto, model, optimizer, 105)
    assert auto.done
    with warnings.catch_warnings():
        end = tensors(model)
        auto.rollback()
        assert same(tensors(model), end)


# Weights loaded late


@pytest.mark.parametrize("with_batches", [False, True])
@pytest.mark.parametrize("what", ["model", "optimizer", "both"])
def test_state_loaded_after_autolrs_was_made_is_not_lost(what, with_batches):
    trained, its_optimizer, _ = make(seed=3, kind=torch.optim.Adam)
    for _ in range(4):
        train_step(trained, its_optimizer, BATCH)
    model, optimizer, loader = make(kind=torch.optim.Adam)
    auto = auto_for(model, optimizer)
    if what != "optimizer":
        model.load_state_dict(trained.state_dict())
    if what != "model":
        optimizer.load_state_dict(its_optimizer.state_dict())
    expected = [p.detach().clone() for p in model.parameters()]
    seen = {}
    for batch in auto.batches(loader) if with_batches else [BATCH] * 6:
        if auto.raw_steps in (0, 5):  # the beginning of the first and the second probe
            weights = [p.detach().clone() for p in model.parameters()]
            steps_taken = [int(s["step"]) for s in optimizer.state.values()]
            seen[auto.raw_steps] = (weights, steps_taken)
        info = auto.step(train_step(model, optimizer, batch))
        assert info.lr == optimizer.param_groups[0]["lr"] or auto.raw_steps == 5
        if auto.raw_steps == 6:
            break
    assert same(seen[0][0], expected) and same(seen[5][0], expected)
    assert seen[0][1] == seen[5][1] == ([] if what == "model" else [4] * 6)


def test_the_lr_of_a_loaded_optimizer_state_does_not_count():
    model, optimizer, _ = make()
    other = torch.optim.SGD(net(1).parameters(), lr=7.0, momentum=0.9)
    auto = auto_for(model, optimizer)
    optimizer.load_state_dict(other.state_dict())
    weights = [p.detach().clone() for p in model.parameters()]
    train_step(model, optimizer, BATCH)
    moved = max((p - w).abs().max().item() for p, w in zip(model.parameters(), weights, strict=True))
    assert optimizer.param_groups[0]["lr"] == auto.lr
    assert moved < 1.0


# Faults of the training


def corrupted(when, value=math.nan, **settings):
    """A run whose loss is `value` where `when(auto)` says so."""
    model, optimizer, loader = make()
    auto = auto_for(model, optimizer, **settings)
    events = recorded(auto)
    for batch in auto.batches(loader):
        loss = train_step(model, optimizer, batch)
        auto.step(loss * value if when(auto) else loss)
    return auto, events


def index(auto):
    return auto.session.command.index if auto.exploring else None


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("bad", [0, 1, 2])
@pytest.mark.parametrize("abort", [False, True])
def test_a_candidate_that_diverges_never_wins(bad, value, abort):
    auto, events = corrupted(lambda auto: index(auto) == bad, value, abort_diverged=abort)
    assert auto.committed_steps == 60
    diverged = {
        e.lr for e in events if isinstance(e, Aborted) or (isinstance(e, Probed) and e.forecast.status == "diverged")
    }
    assert len(diverged) >= 1
    committed = {segment.lr_start for segment in auto.schedule.segments}
    explored = {e.lr for e in events if isinstance(e, Probed) and e.forecast.status != "diverged"}
    assert committed <= explored
    assert any(isinstance(e, Aborted) for e in events) is abort


def test_when_every_candidate_diverges_the_lowest_then_the_previous_lr_stays():
    auto, events = corrupted(lambda auto: auto.exploring)
    notes = [event.message for event in events if isinstance(event, Noted)]
    assert [segment.lr_start for segment in auto.schedule.segments] == [1e-3, 1e-3]
    assert "all 3 probes of stage 0 diverged: keeping the interval's lowest LR, 0.001" in notes
    assert "all 3 probes of stage 1 diverged: keeping the previous LR, 0.001" in notes


def test_weights_that_became_nan_in_a_probe_are_healed_by_the_restore():
    model, optimizer, loader = make(momentum=0.0)
    auto = auto_for(model, optimizer, lr=(1e-3, 1e30), total_steps=20)
    events = recorded(auto)
    train(auto, model, optimizer, loader)
    assert any(isinstance(e, Probed) and e.forecast.status == "diverged" for e in events)
    assert all(torch.isfinite(tensor).all() for tensor in tensors(model))


def validated(evaluate, **settings):
    model, optimizer, loader = make()
    auto = auto_for(model, optimizer, evaluate=lambda: evaluate(model), max_stage_steps=20, total_steps=20, **settings)
    return auto, model, optimizer, loader


def test_evaluate_is_called_in_eval_mode_and_leaves_batchnorm_alone():
    calls = []

    def evaluate(model):
        calls.append(model.training)
        before = [buffer.clone() for buffer in model.buffers()]
        loss = loss_of(model, (X, Y))
        assert same(before, list(model.buffers()))
        return loss

    auto, model, optimizer, loader = validated(evaluate, replay=True)
    train(auto, model, optimizer, loader)
    assert model.training and calls == [False] * len(calls) and len(calls) == 3 * 5
    plain, optimizer, loader = make()
    bare(plain, optimizer, loader, auto.schedule)
    assert same(tensors(model), tensors(plain))


def test_evaluate_that_leaves_the_model_in_eval_mode_does_no_harm():
    auto, model, optimizer, loader = validated(lambda model: loss_of(model.eval(), (X, Y)))
    for batch in auto.batches(loader):
        assert model.training
        auto.step(train_step(model, optimizer, batch))


def test_evaluate_that_raises_undoes_the_probe_and_can_be_tried_again():
    failures = [2]

    def evaluate(model):
        if failures[0]:
            failures[0] -= 1
            raise OSError("disk on fire")
        return loss_of(model, (X, Y))

    auto, model, optimizer, loader = validated(evaluate)
    start, raised = tensors(model), 0
    for batch in auto.batches(loader):
        loss = train_step(model, optimizer, batch)
        try:
            auto.step(loss)
        except RuntimeError as error:
            raised += 1
            assert "`evaluate` failed in probe 0 of stage 0, after 0 committed steps" in str(error)
            assert isinstance(error.__cause__, OSError) and "disk on fire" in str(error)
            assert same(tensors(model), start) and auto.raw_steps == 0
    assert raised == 2 and auto.committed_steps == 20


def test_evaluate_that_returns_nan_counts_as_diverged():
    auto, model, optimizer, loader = validated(lambda model: math.nan)
    events = recorded(auto)
    train(auto, model, optimizer, loader)
    assert auto.committed_steps == 20
    assert {e.forecast.status for e in events if isinstance(e, Probed)} == {"diverged"}
    assert auto.schedule.segments[0].lr_start == 1e-3


# Faults of the user


def test_a_step_after_the_end_warns_and_changes_nothing():
    model, optimizer, loader = make()
    auto = auto_for(model, optimizer)
    train(auto, model, optimizer, loader)
    lr = optimizer.param_groups[0]["lr"]
    for _ in range(2):
        with pytest.warns(RuntimeWarning, match=r"called after the run was done \(60 committed steps\)"):
            info = auto.step(1.0)
        assert info.done and not info.counted and (info.committed_steps, info.raw_steps) == (60, 105)
    assert optimizer.param_groups[0]["lr"] == lr == auto.lr == auto.schedule.segments[-1].lr_end


def test_step_that_is_never_called_is_a_clear_error(monkeypatch):
    monkeypatch.setattr(auto_module, "_QUIET_BATCHES", 30)
    model, optimizer, loader = make()
    auto = auto_for(model, optimizer)
    with pytest.raises(RuntimeError, match=r"`auto.step\(loss\)` was not called for 30 batches"):
        for batch in auto.batches(loader):
            train_step(model, optimizer, batch)


def test_somebody_else_setting_the_lr_is_noticed():
    model, optimizer, loader = make()
    auto = auto_for(model, optimizer)
    with pytest.warns(RuntimeWarning, match=r"the optimizer's LR is 0\.5 but autolrs set"):
        for batch in auto.batches(loader):
            optimizer.param_groups[0]["lr"] = 0.5
            auto.step(train_step(model, optimizer, batch))
            if auto.raw_steps == 5:
                break


def test_track_comes_before_the_first_step():
    model, optimizer, _ = make()
    auto = auto_for(model, optimizer)
    steps(auto, model, optimizer, 1)
    with pytest.raises(RuntimeError, match="`track` must be called before the first step, got it after 1"):
        auto.track(ema=net())


def test_only_what_has_a_state_can_be_tracked():
    model, optimizer, _ = make()
    with pytest.raises(TypeError, match="`ema` must have state_dict and load_state_dict, got int"):
        auto_for(model, optimizer).track(ema=3)


def test_a_tracked_ema_ends_where_it_would_have_without_probes():
    def fresh():
        model, optimizer, loader = make()
        average = torch.optim.swa_utils.get_ema_multi_avg_fn(0.9)
        return (
            model,
            optimizer,
            loader,
            torch.optim.swa_utils.AveragedModel(model, multi_avg_fn=average, use_buffers=True),
        )

    model, optimizer, loader, ema = fresh()
    auto = auto_for(model, optimizer, replay=True)
    auto.track(ema=ema)
    for batch in auto.batches(loader):
        loss = train_step(model, optimizer, batch)
        ema.update_parameters(model)
        auto.step(loss)
    again, optimizer, loader, its_ema = fresh()
    scheduler = auto.schedule.to_torch(optimizer)
    for _ in range(10):
        for batch in loader:
            train_step(again, optimizer, batch)
            its_ema.update_parameters(again)
            scheduler.step()
    assert int(ema.n_averaged) == 60
    assert same(tensors(ema), tensors(its_ema))


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"lr": (0.1, 0.01)}, ValueError, r"`lr` must be 0 < min < max, both finite, got \(0\.1, 0\.01\)"),
        ({"lr": (0.0, 0.1)}, ValueError, r"`lr` must be 0 < min < max, both finite, got \(0\.0, 0\.1\)"),
        ({"lr": (-0.1, 0.1)}, ValueError, r"got \(-0\.1, 0\.1\)"),
        ({"lr": (math.nan, 0.1)}, ValueError, r"got \(nan, 0\.1\)"),
        ({"lr": (0.1, math.inf)}, ValueError, r"got \(0\.1, inf\)"),
        ({"lr": 0.1}, ValueError, "`lr` must be 0 < min < max, both finite, got 0.1"),
        ({"lr": "fast"}, ValueError, "`lr` must be 0 < min < max, both finite, got 'fast'"),
        ({"total_steps": 0}, ValueError, "`total_steps` must be a whole number of at least 1, got 0"),
        ({"probe_fraction": 0.1}, ValueError, r"a probe must have at least 4 steps, got 2 = probe_fraction 0\.1"),
        ({"n_probe": 3}, TypeError, "unknown setting `n_probe`; did you mean `n_probes`"),
        ({"checkpoint_every": -1}, ValueError, "`checkpoint_every` must not be negative, got -1"),
        ({"evaluate": 3}, TypeError, r"`evaluate` must be a function \(\) -> float, got int"),
        ({"strategy": "best"}, ValueError, "best"),
        ({"preset": "wild"}, ValueError, "`preset` must be one of strict, practical; got 'wild'"),
    ],
)
def test_bad_settings_are_refused_by_name(change, error, message, tmp_path):
    model, optimizer, _ = make()
    with pytest.raises(error, match=message):
        auto_for(model, optimizer, run_dir=tmp_path / "run", **change)
    assert not (tmp_path / "run").exists()


def test_bad_objects_are_refused():
    model, optimizer, _ = make()
    with pytest.raises(TypeError, match=r"`model` must be a torch\.nn\.Module, got str"):
        auto_for("model", optimizer)
    with pytest.raises(TypeError, match=r"`optimizer` must be a torch\.optim\.Optimizer, got Sequential"):
        auto_for(model, model)
    with pytest.raises(ValueError, match="`model` has no parameters"):
        auto_for(nn.ReLU(), optimizer)


@pytest.mark.parametrize("kind", ["torch", "ours"])
def test_an_optimizer_with_a_scheduler_is_refused(kind):
    model, optimizer, _ = make()
    if kind == "torch":
        torch.optim.lr_scheduler.StepLR(optimizer, 10)
    else:
        autolrs.Schedule((autolrs.Segment(3, 0.1, 0.1),)).to_torch(optimizer)
    with pytest.raises(ValueError, match="already has a scheduler attached"):
        auto_for(model, optimizer)


def test_a_horizon_without_total_steps_is_refused():
    model, optimizer, _ = make()
    with pytest.raises(ValueError, match="`total_steps` is needed by strategy 'horizon'"):
        autolrs.AutoLRS(model, optimizer, strategy="horizon", lr=(1e-3, 1e-1))


def test_the_optimizer_can_still_be_pickled_and_the_last_event_is_finished():
    model, optimizer, loader = make()
    auto = auto_for(model, optimizer)
    events = recorded(auto)
    train(auto, model, optimizer, loader)
    assert pickle.loads(pickle.dumps(optimizer)).param_groups[0]["lr"] == optimizer.param_groups[0]["lr"]
    assert events[-1] == Finished("total_steps reached")
