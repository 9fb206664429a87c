"""What an `evaluate` costs is counted by the data it looks at, and the search keeps to what that leaves."""

import copy
import json
import pickle

import pytest
import torch
from nets import X, Y, loss_of, make, same, tensors, train, train_step
from torch import nn

import autolrs
from autolrs.cli.doctor import examine
from autolrs.core.types import Asked, Noted, Probe, Probed, Weighed
from autolrs.pytorch.weigh import Weigher

RUN = {"total_steps": 600, "keep_best": False}


def validation(model, rows):
    def evaluate():
        with torch.no_grad():
            return loss_of(model, (X.repeat(100, 1)[:rows], Y.repeat(100)[:rows])).item()

    return evaluate


def begin(rows=24, **settings):
    """Batches of 8 and an `evaluate` over so many rows, so that it costs rows / 8 / 3 steps."""
    model, optimizer, loader = make()
    events = []
    auto = autolrs.AutoLRS(model, optimizer, evaluate=validation(model, rows), **{**RUN, **settings})
    auto.on_event(events.append)
    return auto, model, optimizer, loader, events


def weighed(events):
    return [event for event in events if isinstance(event, Weighed)]


def hooks(model):
    return len(model._forward_pre_hooks)


def test_an_evaluate_costs_a_third_of_a_step_for_each_batch_that_it_looks_at():
    auto, model, optimizer, loader, events = begin(rows=40, total_steps=1100)
    untrained = copy.deepcopy(model)
    train(auto, model, optimizer, loader)
    (event,) = weighed(events)
    assert event.evaluate_cost == pytest.approx(40 / 8 / 3) == auto.settings.evaluate_cost
    untrained.eval()
    assert event.loss == validation(untrained, 40)()  # before any training, not where the ramp ended
    minis = sum(one.evaluations for one in events if isinstance(one, Probed))  # those that were not given up
    assert minis and auto.session.state.evaluations == 1 + minis + 2  # and the two at the end


def test_accumulated_gradients_count_as_one_step():
    model, optimizer, loader = make()
    auto = autolrs.AutoLRS(model, optimizer, evaluate=validation(model, 48), **RUN)
    for batch in auto.batches(loader):
        for half in (0, 1):
            loss = loss_of(model, [part[4 * half : 4 * half + 4] for part in batch])
            (loss / 2).backward()
        optimizer.step()
        optimizer.zero_grad()
        auto.step(loss)
        if auto.settings.evaluate_cost is not None:
            break
    assert auto.settings.evaluate_cost == pytest.approx(48 / 8 / 3)


def test_forward_passes_of_the_users_own_between_steps_do_not_count():
    auto, model, optimizer, loader, _ = begin(rows=16)
    for batch in auto.batches(loader):
        with torch.no_grad():
            model(X)
        auto.step(train_step(model, optimizer, batch))
        if auto.settings.evaluate_cost is not None:
            break
    assert auto.settings.evaluate_cost == pytest.approx(16 / 8 / 3)


@pytest.mark.parametrize("rows", [8, 80, 400, 1600, 4800])
@pytest.mark.parametrize("total_steps", [600, 1200])
def test_whatever_it_costs_the_run_stays_below_the_ceiling(rows, total_steps):
    auto, model, optimizer, loader, events = begin(rows, total_steps=total_steps, keep_best="auto")
    train(auto, model, optimizer, loader)
    (event,) = weighed(events)
    over = max(0.0, event.evaluate_cost - 0.25 * 0.15 * total_steps)  # nobody knows what it costs before it was called
    spent = auto.raw_steps + auto.session.state.evaluations * event.evaluate_cost
    assert spent <= 1.15 * total_steps + over + 1e-6
    assert any(isinstance(e, Noted) and "let it look at less data" in e.message for e in events) == (over > 0)
    probes = [e.command for e in events if isinstance(e, Asked) and isinstance(e.command, Probe)]
    assert len(probes) >= (
        2 if total_steps > 1000 else 1
    )  # a search, whatever it costs: miniature runs, or a slow ramp
    if event.evaluate_cost > 0.25 * 24:  # dearer than a quarter of a miniature run
        assert {probe.metric for probe in probes} == {"train"}


def test_a_cheap_evaluate_leaves_money_for_looks_in_a_short_run():
    auto, model, optimizer, loader, _ = begin(rows=8, keep_best="auto")
    train(auto, model, optimizer, loader)
    dear, model, optimizer, loader, _ = begin(rows=8, keep_best="auto", evaluate_cost=10.0)
    train(dear, model, optimizer, loader)
    assert len(auto.session.state.looks) >= 5 and len(dear.session.state.looks) == 0


def test_a_cost_that_the_user_gives_stands():
    auto, model, optimizer, loader, events = begin(evaluate_cost=2.0)
    assert hooks(model) == 0
    train(auto, model, optimizer, loader)
    assert not weighed(events) and auto.settings.evaluate_cost == 2.0


@pytest.mark.parametrize(
    "settings", [{}, {"total_steps": 60}, {"strategy": "paper", "lr": (1e-3, 1e-1)}], ids=["search", "none", "paper"]
)
def test_the_model_is_left_without_hooks(settings):
    auto, model, optimizer, loader, _ = begin(**settings)
    train(auto, model, optimizer, loader, stop=40)
    assert hooks(model) == 0


def test_a_model_that_is_saved_or_copied_meanwhile_is_a_model_as_before():
    _, model, _, _, _ = begin()
    assert hooks(model) == 1
    raw = pickle.dumps(model)
    assert b"autolrs" not in raw
    loaded = pickle.loads(raw)
    model.eval(), loaded.eval()
    assert torch.equal(loaded(X), model(X))


def test_an_evaluate_on_a_copy_of_the_model_is_weighed_too():
    model, optimizer, loader = make()
    kept = []
    auto = autolrs.AutoLRS(model, optimizer, evaluate=lambda: validation(kept[0], 24)(), **RUN)
    kept.append(copy.deepcopy(model))
    train(auto, model, optimizer, loader, stop=30)
    assert auto.settings.evaluate_cost == pytest.approx(24 / 8 / 3)


@pytest.mark.parametrize("why", ["compiled", "elsewhere"])
def test_what_cannot_be_counted_is_ten_forward_passes(why):
    model, optimizer, loader = make()
    if why == "compiled":
        model.compile(backend="eager")
    evaluate = validation(model, 24) if why == "compiled" else lambda: 1.0
    auto = autolrs.AutoLRS(model, optimizer, evaluate=evaluate, **RUN)
    train(auto, model, optimizer, loader, stop=30)
    assert auto.settings.evaluate_cost == pytest.approx(10 / 3) and hooks(model) == 0


def test_tokens_are_counted_and_keywords_are_looked_at():
    class Language(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(5, 3)

        def forward(self, mask=None, *, tokens):
            return self.embed(tokens).sum()

    model = Language()
    weigher = Weigher(model)
    for _ in range(2):
        model(tokens=torch.zeros(4, 6, dtype=torch.int64)).backward()
    loss, cost = weigher.weigh(lambda: model(tokens=torch.zeros(2, 24, dtype=torch.int64)).item(), steps=2)
    assert cost == pytest.approx(2 * 24 / (4 * 6) / 3) and loss == pytest.approx(
        48 * model.embed.weight[0].sum().item()
    )


def test_weighing_changes_nothing_of_the_training():
    """The same miniature runs and the same weights in the end as with that cost given."""
    auto, model, optimizer, loader, events = begin(rows=24, max_cost=1.5)
    train(auto, model, optimizer, loader)
    other, same_model, optimizer, loader, given = begin(rows=24, max_cost=1.5, evaluate_cost=1.0)
    train(other, same_model, optimizer, loader)
    asked = [[e for e in some if isinstance(e, Asked)] for some in (events, given)]
    assert asked[0] == asked[1] and same(tensors(model), tensors(same_model))


def test_an_evaluate_that_fails_at_first_is_noted_and_the_run_goes_on():
    model, optimizer, loader = make()
    calls = []

    def evaluate():
        calls.append(1)
        if len(calls) == 1:
            raise OSError("the disk slept")
        return validation(model, 24)()

    auto, events = autolrs.AutoLRS(model, optimizer, evaluate=evaluate, **RUN), []
    auto.on_event(events.append)
    train(auto, model, optimizer, loader)
    assert auto.done and not weighed(events) and hooks(model) == 0
    assert any("was not weighed" in e.message and "the disk slept" in e.message for e in events if isinstance(e, Noted))


def test_an_interrupt_while_it_is_weighed_leaves_a_run_that_goes_on():
    model, optimizer, loader = make()
    calls = []

    def evaluate():
        calls.append(1)
        if len(calls) == 1:
            raise KeyboardInterrupt
        return validation(model, 24)()

    auto = autolrs.AutoLRS(model, optimizer, evaluate=evaluate, **RUN)
    with pytest.raises(KeyboardInterrupt):
        train(auto, model, optimizer, loader)
    assert auto.exploring and hooks(model) == 0
    train(auto, model, optimizer, loader)
    assert auto.done


def test_a_killed_search_is_weighed_again_and_its_journal_is_whole(tmp_path):
    run = tmp_path / "run"
    auto, model, optimizer, loader, _ = begin(run_dir=run)
    train(auto, model, optimizer, loader, stop=50)  # in the second miniature run, before any checkpoint
    del auto
    model, optimizer, loader = make()
    again = autolrs.resume(run, model, optimizer, evaluate=validation(model, 24))
    assert again.settings.evaluate_cost is None
    train(again, model, optimizer, loader)
    assert again.done and again.settings.evaluate_cost == pytest.approx(1.0)
    kinds = [json.loads(line)["event"]["kind"] for line in (run / "journal.jsonl").read_text().splitlines()[1:]]
    assert kinds.count("Weighed") == 2
    assert {check.verdict for check in examine(run)} == {"ok"}
    straight, model, optimizer, loader, _ = begin()
    train(straight, model, optimizer, loader)
    assert again.schedule == straight.schedule


@pytest.mark.parametrize("stop", [10, 50, 300])
def test_a_checkpoint_of_the_users_own_keeps_what_was_weighed(stop):
    auto, model, optimizer, loader, _ = begin()
    train(auto, model, optimizer, loader, stop=stop)
    state = auto.state_dict()
    other, model, optimizer, loader, events = begin()
    other.load_state_dict(state)
    assert hooks(model) == int(stop == 10)  # the ramp is not over there
    train(other, model, optimizer, loader)
    assert other.done and other.settings.evaluate_cost == pytest.approx(1.0)
    assert len(weighed(events)) == int(stop == 10) and hooks(model) == 0
