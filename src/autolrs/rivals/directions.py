"""The direction in which an optimizer last stepped: u with theta' = theta - lr u.

Hypergradient methods differentiate a step with respect to the LR, which is -u. Read from the optimizer's own state
rather than from the change of the weights: an LR of 1e-6 leaves no digits of that, and one of 0 nothing at all.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.optim import SGD, Adam, AdamW, Optimizer


def check(optimizer: Optimizer) -> None:
    """SGD with or without (Nesterov) momentum, Adam and AdamW are known; a TypeError names anything else."""
    if type(optimizer) not in (SGD, Adam, AdamW):
        raise TypeError(f"`optimizer` must be torch's SGD, Adam or AdamW, got {type(optimizer).__name__}")
    for name in ("amsgrad", "maximize", "dampening"):
        if optimizer.defaults.get(name):
            raise TypeError(f"`{name}` is not known to hypergradient methods, got {optimizer.defaults[name]}")


@torch.no_grad()
def step(optimizer: Optimizer) -> dict[Tensor, Tensor]:
    """Take the optimizer's step; returns the direction of each parameter that has a gradient."""
    found: dict[Tensor, Tensor] = {}
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            if parameter.grad is None:
                continue
            decay = group["weight_decay"]
            if isinstance(optimizer, SGD):  # a copy: Nesterov's fused step overwrites the gradient
                found[parameter] = parameter.grad.add(parameter, alpha=decay)
            elif isinstance(optimizer, AdamW):
                found[parameter] = decay * parameter
    optimizer.step()
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            if parameter.grad is None:
                continue
            state = optimizer.state[parameter]
            if isinstance(optimizer, SGD):
                if group["momentum"]:
                    buffer = state["momentum_buffer"]
                    found[parameter] = (
                        found[parameter].add_(buffer, alpha=group["momentum"]) if group["nesterov"] else buffer.clone()
                    )
            else:
                adam = _adam(state, group["betas"], group["eps"])
                found[parameter] = found[parameter].add_(adam) if isinstance(optimizer, AdamW) else adam
    return found


def _adam(state: dict[str, Tensor], betas: tuple[float, float], eps: float) -> Tensor:
    count = float(state["step"])
    mean = state["exp_avg"] / (1 - betas[0] ** count)
    square = state["exp_avg_sq"] / (1 - betas[1] ** count)
    return mean / (square.sqrt() + eps)
