"""MARTHE (Donini et al. 2020) and RTHO (Franceschi et al. 2017): descent on the validation loss's gradient in the LR.

Forward mode: Z = d(state)/d(lr) follows the training by Z <- mu A Z + B, where A and B are the derivatives of one
optimizer step in its state and in the LR; then lr <- max(0, lr - beta grad E(w) . Z_w) with E the validation loss.
mu = 1 remembers everything (RTHO), mu = 0 one step only (hypergradient descent on the validation loss). A Z needs the
product of the Hessian with Z, from a second backward pass: a step costs about four gradients.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.optim import SGD, AdamW, Optimizer

from autolrs.rivals import directions

GRADIENTS = 4  # of which one trains, one is of the validation loss, two make a product with the Hessian

State = tuple[Tensor, ...]


class Marthe:
    """Trains `parameters` by the rule of `like` (SGD, Adam or AdamW) with an LR that descends on the validation loss.

    All parameters share one LR and the hyper-parameters of the first group. The optimizer itself is only read.
    """

    def __init__(
        self,
        parameters: Sequence[Tensor],
        like: Optimizer,
        lr: float,
        hypergradient_lr: float,
        mu: float,
        clip: float | None = None,
    ) -> None:
        """`clip` bounds the norm of the training gradient; its factor counts as a constant."""
        if not 0 <= mu <= 1:
            raise ValueError(f"`mu` must be 0 <= mu <= 1, got {mu}")
        directions.check(like)
        self.parameters, self.lr, self.hypergradient_lr, self.mu, self.clip = (
            list(parameters), lr, hypergradient_lr, mu, clip,
        )  # fmt: skip
        self._like, self._count = like, 0
        zeros = torch.zeros_like(_flat(self.parameters))
        self._state: State = tuple(zeros.clone() for _ in range(1 if isinstance(like, SGD) else 2))
        self.tangent: State = tuple(zeros.clone() for _ in range(1 + len(self._state)))  # Z: weights, then state

    def step(self, loss: Callable[[], Tensor], validation: Callable[[], Tensor]) -> Tensor:
        """One step of weights, then of the LR; returns the training loss before it.

        `loss` and `validation` compute the loss of a training and of a validation batch, with their graphs.
        """
        with sdpa_kernel(SDPBackend.MATH):  # the fused attention has no second derivative
            value = loss()
            tangent = tuple(self.mu * z for z in self.tangent)
            gradient, product = self._gradient(value, tangent[0])
        self._count += 1
        weights = _flat(self.parameters)
        u, du, self._state, state_tangent = self._direction(weights, gradient, tangent, product)
        moved = tangent[0] - self.lr * du - u  # A Z + B, the derivative of w - lr u
        self.tangent = (moved, *state_tangent)
        self._write(weights - self.lr * u)
        outer = torch.autograd.grad(validation(), self.parameters, allow_unused=True)
        hypergradient = float(_flat_gradient(outer, self.parameters) @ moved)
        if hypergradient == hypergradient:  # not a number once training has diverged: the LR stays
            self.lr = max(0.0, self.lr - self.hypergradient_lr * hypergradient)
        return value.detach()

    def _gradient(self, value: Tensor, tangent: Tensor) -> tuple[Tensor, Tensor]:
        """(gradient, Hessian times `tangent`), both flat and clipped alike."""
        wanted = bool(tangent.any())
        parts = torch.autograd.grad(value, self.parameters, create_graph=wanted, allow_unused=True)
        gradient = _flat_gradient(parts, self.parameters)
        product = torch.zeros_like(gradient)
        if wanted:
            second = torch.autograd.grad(gradient @ tangent, self.parameters, allow_unused=True)
            product = _flat_gradient(second, self.parameters)
        gradient = gradient.detach()
        if self.clip is not None:
            factor = torch.clamp(self.clip / (gradient.norm() + 1e-6), max=1.0)
            gradient, product = gradient * factor, product * factor
        return gradient, product

    def _direction(
        self, weights: Tensor, gradient: Tensor, tangent: State, product: Tensor
    ) -> tuple[Tensor, Tensor, State, State]:
        """(u, its tangent, the optimizer's state after the step, its tangent) for w - lr u; `d` names a tangent."""
        group = self._like.param_groups[0]
        decay, d_weights = group["weight_decay"], tangent[0]
        if not isinstance(self._like, AdamW):
            gradient, product = gradient + decay * weights, product + decay * d_weights
        if isinstance(self._like, SGD):
            momentum = group["momentum"]
            buffer = momentum * self._state[0] + gradient
            d_buffer = momentum * tangent[1] + product
            if group["nesterov"]:
                return gradient + momentum * buffer, product + momentum * d_buffer, (buffer,), (d_buffer,)
            return buffer, d_buffer, (buffer,), (d_buffer,)
        first, second = group["betas"]
        mean = first * self._state[0] + (1 - first) * gradient
        d_mean = first * tangent[1] + (1 - first) * product
        square = second * self._state[1] + (1 - second) * gradient**2
        d_square = second * tangent[2] + (1 - second) * 2 * gradient * product
        one, two = 1 - first**self._count, 1 - second**self._count
        root = (square / two).sqrt()
        # A parameter that never had a gradient stands still; the root has no derivative there.
        d_root = torch.where(root > 0, d_square / two / (2 * root), 0.0)
        below = root + group["eps"]
        u = mean / one / below
        du = d_mean / one / below - mean / one * d_root / below**2
        if isinstance(self._like, AdamW):
            u, du = u + decay * weights, du + decay * d_weights
        return u, du, (mean, square), (d_mean, d_square)

    @torch.no_grad()
    def _write(self, flat: Tensor) -> None:
        start = 0
        for parameter in self.parameters:
            parameter.copy_(flat[start : start + parameter.numel()].view_as(parameter))
            start += parameter.numel()


def _flat(tensors: Sequence[Tensor]) -> Tensor:
    return torch.cat([tensor.detach().flatten() for tensor in tensors])


def _flat_gradient(parts: Sequence[Tensor | None], like: Sequence[Tensor]) -> Tensor:
    return torch.cat(
        [torch.zeros_like(p).flatten() if part is None else part.flatten() for part, p in zip(parts, like, strict=True)]
    )
