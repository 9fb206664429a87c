"""That each rival optimizer is the one its authors ship, at their defaults, for the task's kind of optimizer."""

from __future__ import annotations

import inspect

import pytest

torch = pytest.importorskip("torch")
schedulefree = pytest.importorskip("schedulefree")
prodigyopt = pytest.importorskip("prodigyopt")
dadaptation = pytest.importorskip("dadaptation")

from autolrs.rivals.learning_rate_free import d_adaptation, prodigy, schedule_free  # noqa: E402 - the packages may be missing

KINDS = {
    torch.optim.SGD: schedulefree.SGDScheduleFree,
    torch.optim.Adam: schedulefree.AdamWScheduleFree,
    torch.optim.AdamW: schedulefree.AdamWScheduleFree,
}


def model_and(kind, weight_decay=0.03):
    model = torch.nn.Linear(3, 1)
    return model, kind(model.parameters(), lr=0.123, weight_decay=weight_decay)


@pytest.mark.parametrize(("like", "kind"), KINDS.items())
def test_schedule_free_is_of_the_same_kind_with_the_same_weight_decay(like, kind):
    optimizer = schedule_free(*model_and(like), 0.7, 200)
    assert type(optimizer) is kind
    group = optimizer.param_groups[0]
    assert (group["lr"], group["weight_decay"], group["warmup_steps"]) == (0.7, 0.03, 10)
    assert [p.shape for p in group["params"]] == [(1, 3), (1,)]


@pytest.mark.parametrize(("like", "kind"), KINDS.items())
def test_schedule_free_without_an_lr_takes_its_package_default(like, kind):
    default = inspect.signature(kind.__init__).parameters["lr"].default
    assert schedule_free(*model_and(like), None, 200).param_groups[0]["lr"] == default


def test_schedule_free_warms_up_for_a_step_at_least():
    assert schedule_free(*model_and(torch.optim.SGD), 0.1, 4).param_groups[0]["warmup_steps"] == 1


def test_schedule_free_has_the_modes_by_which_methods_knows_it_and_prodigy_has_not():
    assert hasattr(schedule_free(*model_and(torch.optim.SGD), 0.1, 10), "eval")
    assert not hasattr(prodigy(*model_and(torch.optim.SGD, 0.0)), "eval")


def test_prodigy_keeps_its_default_lr_and_the_weight_decay(capsys):
    optimizer = prodigy(*model_and(torch.optim.AdamW))
    assert type(optimizer) is prodigyopt.Prodigy
    assert (optimizer.param_groups[0]["lr"], optimizer.param_groups[0]["weight_decay"]) == (1.0, 0.03)


@pytest.mark.parametrize(
    ("like", "kind", "decouple"),
    [
        (torch.optim.SGD, dadaptation.DAdaptSGD, None),
        (torch.optim.Adam, dadaptation.DAdaptAdam, False),
        (torch.optim.AdamW, dadaptation.DAdaptAdam, True),
    ],
)
def test_d_adaptation_is_of_the_same_kind_with_its_default_lr(like, kind, decouple, capsys):
    optimizer = d_adaptation(*model_and(like))
    assert type(optimizer) is kind
    group = optimizer.param_groups[0]
    assert (group["lr"], group["weight_decay"]) == (1.0, 0.03)
    assert group.get("decouple") is decouple


def test_d_adaptation_keeps_the_momentum():
    model = torch.nn.Linear(3, 1)
    optimizer = d_adaptation(model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.8))
    assert optimizer.param_groups[0]["momentum"] == 0.8


@pytest.mark.parametrize(
    "make",
    [lambda m, o: schedule_free(m, o, 0.3, 60), prodigy, d_adaptation],
    ids=["schedule_free", "prodigy", "d_adaptation"],
)
def test_it_trains(make):
    torch.manual_seed(0)
    model, like = model_and(torch.optim.SGD, 0.0)
    optimizer = make(model, like)
    if hasattr(optimizer, "train"):
        optimizer.train()
    inputs = torch.randn(64, 3)
    targets = inputs.sum(dim=1, keepdim=True)
    losses = []
    for _ in range(60):
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(inputs), targets)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.2 * losses[0]
