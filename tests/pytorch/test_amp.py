"""Mixed precision: a step that a GradScaler skips moved nothing and is not counted, whatever the optimizer."""

import pytest
import torch
from nets import X, Y, auto_for, loss_of, make, same, tensors

from autolrs.pytorch.amp import SkippedSteps

KINDS = [
    (torch.optim.SGD, {}),
    # No momentum: torch's fused SGD leaves its buffer uninitialised when the first step of all is skipped.
    (torch.optim.SGD, {"fused": True, "momentum": 0.0}),
    (torch.optim.Adam, {}),
    (torch.optim.Adam, {"foreach": True}),
    (torch.optim.AdamW, {"fused": True}),
]
IDS = ["sgd", "sgd fused", "adam", "adam foreach", "adamw fused"]


def scaled(kind, options, **settings):
    model, optimizer, loader = make(kind=kind, **options)
    auto = auto_for(model, optimizer, **settings)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=7)
    auto.track(scaler=scaler)
    return auto, scaler, model, optimizer, loader


def amp_step(auto, scaler, model, optimizer, batch, overflow=False):
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = loss_of(model, batch)
    scaler.scale(loss * float("inf") if overflow else loss).backward()
    scaler.step(optimizer)
    scaler.update()
    return auto.step(loss)


@pytest.mark.parametrize(("kind", "options"), KINDS, ids=IDS)
def test_a_skipped_step_is_not_counted(kind, options):
    auto, scaler, model, optimizer, _ = scaled(kind, options)
    for i, overflow in enumerate([True, False, True, True, False]):
        before = [p.detach().clone() for p in model.parameters()]
        raw = auto.raw_steps
        info = amp_step(auto, scaler, model, optimizer, (X[:8], Y[:8]), overflow)
        assert info.counted is not overflow, i
        assert auto.raw_steps == info.raw_steps == raw + (not overflow)
        assert same(before, [p.detach() for p in model.parameters()]) is overflow


@pytest.mark.parametrize(("kind", "options"), KINDS, ids=IDS)
def test_a_run_with_skipped_steps_commits_just_as_many(kind, options):
    auto, scaler, model, optimizer, loader = scaled(kind, options, replay=True, warmup_steps=6)
    calls = 0
    for batch in auto.batches(loader):
        amp_step(auto, scaler, model, optimizer, batch, overflow=calls % 9 == 4)
        calls += 1
    assert auto.committed_steps == auto.schedule.total_steps == 60
    assert calls == auto.raw_steps + len(range(4, calls, 9))


def test_the_lr_of_a_ramp_waits_for_a_skipped_step():
    auto, scaler, model, optimizer, _ = scaled(torch.optim.AdamW, {"fused": True}, warmup_steps=10)
    batch = (X[:8], Y[:8])
    amp_step(auto, scaler, model, optimizer, batch)
    lr = auto.lr
    amp_step(auto, scaler, model, optimizer, batch, overflow=True)
    assert auto.lr == lr == optimizer.param_groups[0]["lr"]
    amp_step(auto, scaler, model, optimizer, batch)
    assert auto.lr > lr


def test_the_scale_is_restored_with_the_rest():
    auto, scaler, model, optimizer, _ = scaled(torch.optim.SGD, {})
    batch = (X[:8], Y[:8])
    token = auto.host.snapshot()
    amp_step(auto, scaler, model, optimizer, batch, overflow=True)
    assert scaler.get_scale() == 512.0
    auto.host.restore(token)
    assert scaler.get_scale() == 1024.0
    for _ in range(7):
        amp_step(auto, scaler, model, optimizer, batch)
        assert auto.exploring
    assert scaler.get_scale() == 1024.0  # grown to 2048 after 7 steps, had the first probe's 5 not been undone


@pytest.mark.parametrize(("kind", "options"), KINDS[::2], ids=IDS[::2])
def test_a_run_goes_on_exactly_with_its_scaler(kind, options):
    def run(auto, scaler, model, optimizer, loader, calls, stop=None):
        for batch in auto.batches(loader):
            amp_step(auto, scaler, model, optimizer, batch, overflow=calls % 9 == 4)
            calls += 1
            if calls == stop:
                break

    whole = scaled(kind, options)
    run(*whole, 0)
    half = scaled(kind, options)
    run(*half, 0, stop=40)
    state = half[0].state_dict()
    rest = scaled(kind, options)
    rest[0].load_state_dict(state)
    run(*rest, 40)
    assert rest[0].schedule == whole[0].schedule
    assert same(tensors(rest[2]), tensors(whole[2]))
    assert rest[1].state_dict() == whole[1].state_dict()


def test_a_disabled_scaler_changes_nothing():
    model, optimizer, _ = make()
    auto = auto_for(model, optimizer)
    scaler = torch.amp.GradScaler("cpu", enabled=False)
    auto.track(scaler=scaler)
    assert not SkippedSteps.is_scaler(scaler)
    for _ in range(6):
        info = amp_step(auto, scaler, model, optimizer, (X[:8], Y[:8]))
    assert info.counted and auto.raw_steps == 6


def test_a_flag_on_the_device_is_kept_beside_the_loss():
    _, optimizer, _ = make()
    skipped = SkippedSteps(optimizer)
    optimizer.found_inf = torch.ones(1, device="meta")
    skipped._after_step(optimizer)
    assert not skipped.whole_step()
    loss, flag = skipped.flagged(0.5)
    assert loss == 0.5 and flag.device.type == "meta"
    assert skipped.flagged(0.5) == 0.5  # read once
    assert skipped.whole_step()  # nothing was called since
