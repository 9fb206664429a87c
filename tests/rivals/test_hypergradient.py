"""Hypergradient descent against its equations, written out by hand, and its hypergradient against a difference."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from autolrs.rivals.hypergradient import HypergradientDescent  # noqa: E402 - torch may be missing

CURVES = torch.tensor([1.0, 5.0, 0.2], dtype=torch.float64)
START = torch.tensor([1.0, -1.0, 2.0], dtype=torch.float64)
LR, BETA, MOMENTUM = 0.05, 0.004, 0.9


def gradient(theta):
    return CURVES * theta + 0.1 * theta.cos()


def by_hand(kind, steps=12):
    """[(LR, theta)] after each step, as Baydin et al. print Algorithms 4, 5 and 6."""
    theta, lr, rows = START.clone(), LR, []
    v = m = s = torch.zeros(3, dtype=torch.float64)
    u = None
    for t in range(1, steps + 1):
        g = gradient(theta)
        if u is not None:
            lr = lr + BETA * float(g @ u)
        if kind == "sgd":
            u = g
        elif kind == "nesterov":
            v = MOMENTUM * v + g
            u = g + MOMENTUM * v
        else:
            m, s = 0.9 * m + 0.1 * g, 0.999 * s + 0.001 * g * g
            u = (m / (1 - 0.9**t)) / ((s / (1 - 0.999**t)).sqrt() + 1e-8)
        theta = theta - lr * u
        rows.append((lr, theta))
    return rows


def optimizer_of(kind, theta):
    if kind == "adam":
        return torch.optim.Adam([theta], lr=9.9)
    return torch.optim.SGD(
        [theta], lr=9.9, momentum=MOMENTUM if kind == "nesterov" else 0.0, nesterov=kind == "nesterov"
    )


@pytest.mark.parametrize("kind", ["sgd", "nesterov", "adam"])
def test_lr_and_weights_follow_the_equations(kind):
    theta = torch.nn.Parameter(START.clone())
    method = HypergradientDescent(optimizer_of(kind, theta), LR, BETA)
    for lr, expected in by_hand(kind):
        theta.grad = gradient(theta.detach())
        assert method.step() == pytest.approx(lr, rel=1e-9)
        torch.testing.assert_close(theta.detach(), expected)
    assert lr != LR


def test_the_lr_moves_against_the_derivative_of_the_loss_after_the_last_step():
    def loss(theta):
        return float((CURVES * theta**2 / 2 + 0.1 * theta.sin()).sum())

    theta = torch.nn.Parameter(START.clone())
    method = HypergradientDescent(torch.optim.SGD([theta], lr=1.0), LR, BETA)
    theta.grad = first = gradient(START)
    method.step()
    theta.grad = gradient(theta.detach())
    slope = (loss(START - (LR + 1e-6) * first) - loss(START - (LR - 1e-6) * first)) / 2e-6
    assert method.step() == pytest.approx(LR - BETA * slope, rel=1e-6)


def test_the_lr_stops_at_zero_and_can_come_back():
    theta = torch.nn.Parameter(torch.tensor([1.0]))
    method = HypergradientDescent(torch.optim.SGD([theta], lr=1.0), 0.1, 1.0)
    lrs = []
    for g in (1.0, -1.0, -1.0):
        theta.grad = torch.tensor([g])
        lrs.append(method.step())
    assert lrs == [pytest.approx(0.1), 0.0, 1.0]
