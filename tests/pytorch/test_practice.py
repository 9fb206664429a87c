"""What people do in their loops (mixed precision, clipping, accumulation, activation checkpointing, an EMA, compiled
steps) goes on under probes: with `replay` the run equals a plain loop with the schedule found, to the bit."""

import itertools

import pytest
import torch
from nets import PAPER, bare, loss_of, make, same, tensors
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.utils.checkpoint import checkpoint

import autolrs

HORIZON = {"total_steps": 300, "averaging": False}


class Loop:
    """One optimizer step of a loop that does something more; `batches` of it make a step."""

    batches = 1

    def __init__(self, model, optimizer):
        self.model, self.optimizer = model, optimizer

    def tracked(self):
        return {}

    def loss(self, batch):
        return loss_of(self.model, batch)

    def __call__(self, batches):
        self.optimizer.zero_grad()
        total = 0.0
        for batch in batches:
            loss = self.loss(batch) / len(batches)
            loss.backward()
            total = total + loss.detach()
        self.before_step()
        self.optimizer.step()
        self.after_step()
        return total

    def before_step(self):
        pass

    def after_step(self):
        pass

    def state(self):
        return tensors(self.model)


class Bfloat16(Loop):
    def loss(self, batch):
        with torch.autocast("cpu", torch.bfloat16):
            return loss_of(self.model, batch)


class Scaled(Loop):
    """Mixed precision with a scaler that grows every few steps, and so overflows and skips now and then."""

    def __init__(self, model, optimizer):
        super().__init__(model, optimizer)
        self.scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10, growth_interval=5)

    def tracked(self):
        return {"scaler": self.scaler}

    def __call__(self, batches):
        (batch,) = batches
        self.optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            loss = loss_of(self.model, batch)
        self.scaler.scale(loss).backward()
        self.scaler.unscale_(self.optimizer)
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        return loss

    def state(self):
        return [*tensors(self.model), torch.tensor(self.scaler.get_scale())]


class Clipped(Loop):
    def before_step(self):
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 0.1)


class Accumulated(Loop):
    batches = 3


class Checkpointed(Loop):
    """Activations are computed again in the backward pass, dropout's random numbers included."""

    def loss(self, batch):
        out = checkpoint(self.model, batch[0], use_reentrant=False)
        return torch.nn.functional.cross_entropy(out, batch[1])


class Averaged(Loop):
    def __init__(self, model, optimizer):
        super().__init__(model, optimizer)
        self.ema = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9), use_buffers=True)

    def tracked(self):
        return {"ema": self.ema}

    def after_step(self):
        self.ema.update_parameters(self.model)

    def state(self):
        return [*tensors(self.model), *tensors(self.ema)]


LOOPS = [Bfloat16, Scaled, Clipped, Accumulated, Checkpointed, Averaged]


def with_autolrs(kind, settings):
    model, optimizer, loader = make(kind=torch.optim.AdamW)
    loop = kind(model, optimizer)
    auto = autolrs.AutoLRS(model, optimizer, **settings)
    auto.track(**loop.tracked())
    batches = auto.batches(loader)
    while group := list(itertools.islice(batches, loop.batches)):
        if len(group) == loop.batches:
            auto.step(loop(group))
    return auto, loop.state()


def without(kind, schedule):
    model, optimizer, loader = make(kind=torch.optim.AdamW)
    loop = kind(model, optimizer)
    scheduler = schedule.to_torch(optimizer)
    batches = itertools.chain.from_iterable(iter(lambda: iter(loader), None))
    for _ in range(schedule.total_steps):
        loop(list(itertools.islice(batches, loop.batches)))
        scheduler.step()
    return loop.state()


@pytest.mark.parametrize("settings", [{**PAPER, "replay": True}, HORIZON], ids=["paper", "horizon"])
@pytest.mark.parametrize("kind", LOOPS, ids=lambda kind: kind.__name__)
def test_probes_leave_no_trace(kind, settings):
    auto, state = with_autolrs(kind, settings)
    assert auto.committed_steps == settings["total_steps"] == auto.schedule.total_steps
    assert auto.raw_steps > auto.committed_steps
    assert same(state, without(kind, auto.schedule))


def test_a_plain_loop_is_what_these_are_compared_with():
    """The comparison itself can fail: without clipping the weights are others."""
    auto, state = with_autolrs(Clipped, HORIZON)
    model, optimizer, loader = make(kind=torch.optim.AdamW)
    bare(model, optimizer, loader, auto.schedule)
    assert not same(state, tensors(model))
