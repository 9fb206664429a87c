"""The greedy rule: by hand, and against the implementation in transformers."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from autolrs.rivals.greedy import Greedy  # noqa: E402 - torch may be missing


def optimizer(lr=0.1):
    return torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=lr)


def lrs(rule, losses):
    found = []
    for loss in losses:
        rule.step(loss)
        found.append(rule.optimizer.param_groups[0]["lr"])
    return found


def test_up_while_it_improves_and_down_while_it_does_not():
    rule = Greedy(optimizer(), (0.01, 1.0), factor=0.5, patience=1)
    assert lrs(rule, [5, 4, 3, 3, 3, 3, 3]) == [0.1, 0.2, 0.2, 0.2, 0.1, 0.1, 0.05]


def test_the_lr_stays_within_its_bounds():
    assert min(lrs(Greedy(optimizer(), (0.05, 0.3), 0.5, patience=0), [1.0] * 9)) == 0.05
    assert max(lrs(Greedy(optimizer(), (0.05, 0.3), 0.5, patience=0), range(9, 0, -1))) == 0.3


def test_a_loss_that_is_not_a_number_is_worse():
    assert lrs(Greedy(optimizer(), (0.01, 1.0), 0.5, patience=0), [float("nan"), float("inf")]) == [0.05, 0.025]


def test_agrees_with_transformers():
    theirs = pytest.importorskip("transformers.optimization").GreedyLR
    losses = 1 / np.sqrt(np.arange(1, 200)) + 0.02 * np.random.default_rng(0).standard_normal(199)
    ours = Greedy(optimizer(), (1e-3, 1.0), factor=0.9, patience=2)
    other = theirs(optimizer(), factor=0.9, patience=2, min_lr=1e-3, max_lr=1.0)
    assert lrs(ours, losses.tolist()) == pytest.approx(lrs(other, losses.tolist()))


@pytest.mark.parametrize("factor", [0.0, 1.0, 2.0])
def test_a_factor_that_does_not_shrink_is_refused(factor):
    with pytest.raises(ValueError, match=f"got {factor}"):
        Greedy(optimizer(), (0.1, 1.0), factor)
