"""What is known before anything is tried: what steps an optimizer takes, its usual LR, whether a model is new."""

from __future__ import annotations

import torch
from torch import nn

from autolrs.core import usual
from autolrs.pytorch.state import local

SCALE_FREE = (torch.optim.Adam, torch.optim.AdamW, torch.optim.NAdam, torch.optim.RAdam)
RECTIFIED = ("RAdam", "RAdamScheduleFree")


def proportional_steps(optimizer: torch.optim.Optimizer) -> bool:
    """Whether steps are as large as gradients times the LR: those of SGD, and of nothing that is built on it."""
    return type(optimizer) is torch.optim.SGD


def rectified(optimizer: torch.optim.Optimizer) -> float | None:
    """The second beta of RAdam, whose first steps are small (`core/first_steps.py`); None for all others.

    By name, since several libraries have one.
    """
    known = type(optimizer).__name__ in RECTIFIED and "betas" in optimizer.param_groups[0]
    return float(optimizer.param_groups[0]["betas"][1]) if known else None


def uncorrected(optimizer: torch.optim.Optimizer) -> float | None:
    """What RMSprop keeps of its squares from step to step, 1 of Adagrad, whose first steps are large (`core/
    first_steps.py`); None for all others.

    >>> weights = [nn.Parameter(torch.zeros(1))]
    >>> [uncorrected(make(weights)) for make in (torch.optim.RMSprop, torch.optim.Adagrad, torch.optim.Adam)]
    [0.99, 1.0, None]
    """
    group = optimizer.param_groups[0]
    if type(optimizer) is torch.optim.RMSprop:
        return float(group["alpha"])
    whole = type(optimizer) is torch.optim.Adagrad and not group["initial_accumulator_value"]
    return 1.0 if whole else None


def usual_lr(model: nn.Module, optimizer: torch.optim.Optimizer) -> float | None:
    """That of the model's layers (`core/usual.py`) with Adam and its like, or of SGD where there are norms; or None.

    Tables of embeddings do not count: whatever their size, a step changes the rows that were looked up.

    >>> net = nn.Sequential(nn.Linear(32, 128), nn.ReLU(), nn.Linear(128, 10))
    >>> usual_lr(net, torch.optim.Adam(net.parameters())), usual_lr(net, torch.optim.SGD(net.parameters()))
    (0.0125, None)
    >>> net = nn.Sequential(nn.Linear(32, 128), nn.LayerNorm(128), nn.Linear(128, 10))
    >>> usual_lr(net, torch.optim.SGD(net.parameters(), momentum=0.9))
    0.06
    """
    if proportional_steps(optimizer) and normalised(model):
        group = optimizer.param_groups[0]
        return None if group["dampening"] else usual.usual_lr_of_sgd(group["momentum"])
    if type(optimizer) not in SCALE_FREE:
        return None
    tables = {id(m.weight) for m in model.modules() if isinstance(m, (nn.Embedding, nn.EmbeddingBag))}
    trained = (p for group in optimizer.param_groups for p in group["params"] if p.requires_grad)
    return usual.usual_lr(_inputs(p) for p in trained if _is_layer(p) and id(p) not in tables)


def _is_layer(weight: torch.Tensor) -> bool:
    """A weight with inputs and outputs: one of three axes, the first of them 1, is a table of positions."""
    return weight.ndim > 1 and weight.numel() > 0 and not (weight.ndim == 3 and len(weight) == 1)


def _inputs(weight: torch.Tensor) -> float:
    return usual.of_window(weight.shape[1], weight.shape[2:].numel())


def normalised(model: nn.Module) -> bool:
    """Whether the model has layers that normalise.

    >>> normalised(nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8))), normalised(nn.Linear(4, 8))
    (True, False)
    """
    return bool(_norms(model))


def trained_before(model: nn.Module) -> bool:
    """Whether most of the model's normalising layers have scales that differ: they all begin as ones (or zeros).

    A network without such layers does not tell, and counts as new.

    >>> net = nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.Linear(8, 1))
    >>> trained_before(net), nn.init.normal_(net[1].weight) is not None and trained_before(net)
    (False, True)
    """
    scales = [getattr(module, "weight", None) for module in _norms(model)]
    told = (local(scale) for scale in scales if isinstance(scale, torch.Tensor))
    return usual.trained_before(bool((scale != scale.flatten()[:1]).any()) for scale in told)


def _norms(model: nn.Module) -> list[nn.Module]:
    return [module for module in model.modules() if "Norm" in type(module).__name__]
