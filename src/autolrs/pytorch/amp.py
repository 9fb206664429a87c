"""Steps that mixed precision skipped: a GradScaler that met an overflow calls off the step, and it must not count."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


class SkippedSteps:
    """Watches an optimizer under a GradScaler.

    Most optimizers are not called when a step is skipped. Fused ones are called with a flag: on an accelerator it is
    kept beside the loss and read with it, without a synchronisation; on the CPU it is read at once.
    """

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self._called = False
        self._flag: Tensor | None = None
        optimizer.register_step_post_hook(self._after_step)

    @staticmethod
    def is_scaler(value: Any) -> bool:
        """Whether `value` is a gradient scaler that is in use."""
        return isinstance(value, torch.amp.GradScaler) and value.is_enabled()

    def whole_step(self) -> bool:
        """Whether no optimizer step was made since the last call: the whole step was skipped."""
        called, self._called = self._called, False
        return not called

    def flagged(self, loss: Any) -> Any:
        """The loss, together with the device's flag if there is one."""
        flag, self._flag = self._flag, None
        return loss if flag is None else (loss, flag)

    def _after_step(self, optimizer: Any, *_: Any) -> None:
        found = getattr(optimizer, "found_inf", None)
        self._flag = found.detach() if isinstance(found, Tensor) and not found.is_cpu else None
        self._called = self._flag is not None or not found
