"""Hypergradient descent (Baydin et al. 2018; the paper's Appendix A.5.1): the LR follows its own gradient.

lr <- lr + beta g_t . u_{t-1}, where u is the direction of the last step: the gradient for SGD, with (Nesterov) momentum
or Adam's preconditioning if the optimizer has them. The LR is kept from going below 0, where it would climb.
"""

from __future__ import annotations

from torch import Tensor
from torch.optim import Optimizer

from autolrs.rivals import directions


class HypergradientDescent:
    """Steps `optimizer`, whose gradients are there, with an LR of its own finding."""

    def __init__(self, optimizer: Optimizer, lr: float, hypergradient_lr: float) -> None:
        """`lr` to begin with; `hypergradient_lr` is beta."""
        directions.check(optimizer)
        self.optimizer, self.lr, self.hypergradient_lr = optimizer, lr, hypergradient_lr
        self._last: dict[Tensor, Tensor] = {}

    def step(self) -> float:
        """Move the LR, then the weights; returns the LR of the step."""
        pairs = [(p.grad, u) for p, u in self._last.items() if p.grad is not None]
        if pairs:
            product = sum(float((gradient * u).sum()) for gradient, u in pairs)
            self.lr = max(0.0, self.lr + self.hypergradient_lr * product)
        for group in self.optimizer.param_groups:
            group["lr"] = self.lr
        self._last = directions.step(self.optimizer)
        return self.lr
