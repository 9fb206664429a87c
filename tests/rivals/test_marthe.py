"""MARTHE's tangent against finite differences of whole trainings, and its special cases against their equations."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from autolrs.rivals.marthe import Marthe  # noqa: E402 - torch may be missing

KINDS = {
    "sgd": lambda p, lr: torch.optim.SGD(p, lr=lr),
    "nesterov": lambda p, lr: torch.optim.SGD(p, lr=lr, momentum=0.8, nesterov=True, weight_decay=0.1),
    "momentum": lambda p, lr: torch.optim.SGD(p, lr=lr, momentum=0.8),
    "adam": lambda p, lr: torch.optim.Adam(p, lr=lr, weight_decay=0.1),
    "adamw": lambda p, lr: torch.optim.AdamW(p, lr=lr, weight_decay=0.1),
}


def problem():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1)).double()
    inputs = torch.randn(10, 16, 3, dtype=torch.float64)
    targets = inputs.sum(-1, keepdim=True).sin()

    def loss(step):
        return torch.nn.functional.mse_loss(model(inputs[step]), targets[step])

    return model, loss


def weights(model):
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def trained(kind, lr, steps):
    """Weights after a plain torch training at a constant LR."""
    model, loss = problem()
    optimizer = KINDS[kind](model.parameters(), lr)
    for step in range(steps):
        optimizer.zero_grad()
        loss(step).backward()
        optimizer.step()
    return weights(model)


@pytest.mark.parametrize("kind", KINDS)
def test_weights_are_torchs_and_the_tangent_of_rtho_is_the_derivative_of_the_training_in_its_lr(kind):
    model, loss = problem()
    method = Marthe(list(model.parameters()), KINDS[kind](model.parameters(), 9.9), 0.05, 0.0, mu=1.0)
    for step in range(6):
        method.step(lambda step=step: loss(step), lambda: loss(9))
    torch.testing.assert_close(weights(model), trained(kind, 0.05, 6))
    slope = (trained(kind, 0.05 + 1e-5, 6) - trained(kind, 0.05 - 1e-5, 6)) / 2e-5
    torch.testing.assert_close(method.tangent[0], slope, rtol=1e-5, atol=1e-6)


def test_the_lr_descends_on_the_validation_loss_after_the_step():
    model, loss = problem()
    method = Marthe(list(model.parameters()), torch.optim.SGD(model.parameters(), lr=9.9), 0.05, 0.01, mu=0.7)
    start = weights(model)
    train_gradient = torch.cat([g.flatten() for g in torch.autograd.grad(loss(0), list(model.parameters()))])
    method.step(lambda: loss(0), lambda: loss(9))
    torch.testing.assert_close(method.tangent[0], -train_gradient)  # Z_1 = B_0: there was nothing to forget
    torch.testing.assert_close(weights(model), start - 0.05 * train_gradient)
    outer = torch.cat([g.flatten() for g in torch.autograd.grad(loss(9), list(model.parameters()))])
    assert method.lr == pytest.approx(0.05 + 0.01 * float(outer @ train_gradient))


def left_of_the_first_step(mu):
    """Z after two steps, without the second step's own part."""
    model, loss = problem()
    method = Marthe(list(model.parameters()), torch.optim.SGD(model.parameters(), lr=1.0), 0.05, 0.0, mu=mu)
    method.step(lambda: loss(0), lambda: loss(9))
    gradient = torch.cat([g.flatten() for g in torch.autograd.grad(loss(1), list(model.parameters()))])
    method.step(lambda: loss(1), lambda: loss(9))
    return method.tangent[0] + gradient


def test_mu_zero_forgets_all_but_the_last_step_and_mu_between_discounts():
    assert left_of_the_first_step(0.0).abs().max() < 1e-12
    torch.testing.assert_close(left_of_the_first_step(0.5), 0.5 * left_of_the_first_step(1.0))


def test_a_parameter_that_never_had_a_gradient_has_no_tangent_under_adam():
    model = torch.nn.Linear(2, 1)
    method = Marthe(list(model.parameters()), torch.optim.Adam(model.parameters()), 0.1, 0.1, mu=1.0)
    inputs = torch.tensor([[1.0, 0.0]])  # the second weight sees nothing
    for _ in range(3):
        method.step(lambda: model(inputs).square().sum(), lambda: model(inputs).square().sum())
    assert torch.isfinite(method.tangent[0]).all() and method.tangent[0][1] == 0.0


def test_attention_has_the_second_derivative_that_is_needed():
    q = torch.nn.Parameter(torch.randn(1, 2, 4, 8))
    method = Marthe([q], torch.optim.SGD([q], lr=1.0), 0.1, 1e-3, mu=1.0)

    def loss():
        return torch.nn.functional.scaled_dot_product_attention(q, q, q).square().sum()

    for _ in range(3):
        method.step(loss, loss)
    assert torch.isfinite(method.tangent[0]).all()


def test_the_training_gradient_is_clipped():
    w = torch.nn.Parameter(torch.tensor([3.0, 4.0]))
    method = Marthe([w], torch.optim.SGD([w], lr=1.0), 1.0, 0.0, mu=1.0, clip=1.0)
    method.step(lambda: 100 * w.square().sum(), lambda: w.sum())
    assert (w.detach() - torch.tensor([3.0, 4.0])).norm() == pytest.approx(1.0, abs=1e-5)


def test_mu_outside_its_range_is_refused():
    w = torch.nn.Parameter(torch.zeros(1))
    with pytest.raises(ValueError, match=r"0 <= mu <= 1, got 1\.5"):
        Marthe([w], torch.optim.SGD([w], lr=1.0), 0.1, 0.1, mu=1.5)
