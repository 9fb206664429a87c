"""How many steps one `evaluate` is worth, by what each puts through the model. Nothing is timed: a clock would decide
otherwise on another machine, or on the same one next time."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from autolrs.core.settings import FORWARD


class Weigher:
    """Counts the numbers that enter a model, in training steps from now on and then in one `evaluate`."""

    def __init__(self, model: nn.Module) -> None:
        inner = model.module if isinstance(model, nn.parallel.DistributedDataParallel) else model
        self._count = _Count()
        # A hook would make a compiled model compile again, and then once more without it.
        compiled = hasattr(inner, "_orig_mod") or getattr(inner, "_compiled_call_impl", None) is not None
        known = not compiled and not isinstance(inner, torch.jit.ScriptModule)
        self._handle = inner.register_forward_pre_hook(self._count, with_kwargs=True) if known else None

    def weigh(self, evaluate: Callable[[], float], steps: int) -> tuple[float, float | None]:
        """What `evaluate` gives, and its worth in steps after `steps` of training; None where neither is known."""
        trained, self._count.seen, self._count.training = self._count.seen, 0, False
        try:
            loss = evaluate()
        finally:
            self.close()
        known = trained and self._count.seen and steps
        return loss, FORWARD * self._count.seen * steps / trained if known else None

    def close(self) -> None:
        """Leave the model as it was."""
        if self._handle is not None:
            self._handle.remove()
            self._handle = None


class _Count:
    """A hook that sums up the sizes of the first tensor that each forward pass gets."""

    def __init__(self) -> None:
        self.seen, self.training = 0, True

    @torch.compiler.disable
    def __call__(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        if not self.training or (module.training and torch.is_grad_enabled()):
            self.seen += next((leaf.numel() for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)), 0)

    def __deepcopy__(self, memo: Any) -> _Count:
        return self  # an `evaluate` may look at a copy of the model, as of an EMA

    def __reduce__(self) -> Any:
        return getattr, (nullcontext(), "__exit__")  # does nothing: a model that is saved now does not need us
