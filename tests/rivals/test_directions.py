"""The direction read from an optimizer's state against the change of the weights over the LR."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from autolrs.rivals import directions  # noqa: E402 - torch may be missing

KINDS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1),
    "sgd with decay": lambda p: torch.optim.SGD(p, lr=0.1, weight_decay=0.2),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.2),
    "nesterov": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.2),
    "nesterov, foreach": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True, foreach=True),
    "adam": lambda p: torch.optim.Adam(p, lr=0.1, weight_decay=0.2),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.1, weight_decay=0.2),
    "adam, fused": lambda p: torch.optim.Adam(p, lr=0.1, fused=True),
}


@pytest.mark.parametrize("kind", KINDS)
def test_direction_is_the_change_of_the_weights_over_the_lr(kind):
    generator = torch.Generator().manual_seed(0)
    weights = [torch.nn.Parameter(torch.randn(*s, generator=generator, dtype=torch.float64)) for s in ((3, 2), (4,))]
    unused = torch.nn.Parameter(torch.ones(2, dtype=torch.float64))
    optimizer = KINDS[kind]([*weights, unused])
    for step in range(4):
        optimizer.zero_grad()
        sum((w**2).sum() * (step + 1) + w.sin().sum() for w in weights).backward()
        before = [w.detach().clone() for w in weights]
        found = directions.step(optimizer)
        assert set(found) == set(weights)
        for w, old in zip(weights, before, strict=True):
            torch.testing.assert_close(found[w], (old - w.detach()) / 0.1)


def test_direction_is_there_at_an_lr_of_zero():
    weight = torch.nn.Parameter(torch.tensor([2.0]))
    optimizer = torch.optim.SGD([weight], lr=0.0, momentum=0.9)
    (weight**2).sum().backward()
    assert directions.step(optimizer)[weight].item() == 4.0 and weight.item() == 2.0


@pytest.mark.parametrize(
    ("make", "word"),
    [
        (lambda p: torch.optim.RMSprop(p), "RMSprop"),
        (lambda p: torch.optim.Adam(p, amsgrad=True), "amsgrad"),
        (lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, dampening=0.5), "dampening"),
    ],
)
def test_an_optimizer_that_is_not_known_is_named(make, word):
    with pytest.raises(TypeError, match=word):
        directions.check(make([torch.nn.Parameter(torch.zeros(1))]))
