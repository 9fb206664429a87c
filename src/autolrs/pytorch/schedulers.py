"""A found `Schedule` as an ordinary PyTorch scheduler, to train again at 1x the cost."""

from __future__ import annotations

from typing import Any

import torch
from torch.optim.lr_scheduler import LRScheduler

from autolrs.core.schedule import Schedule


class ScheduleLR(LRScheduler):
    """Replays a schedule, one `step()` per optimizer step; parameter groups keep their LR ratios to the first.

    Picklable, with `get_last_lr` and a `state_dict` of plain values.
    """

    def __init__(self, optimizer: torch.optim.Optimizer, schedule: Schedule, last_epoch: int = -1) -> None:
        self.schedule = schedule
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Any]:
        """LR of each group for the next step."""
        first = float(self.base_lrs[0])
        if not first > 0:
            raise ValueError(f"the first parameter group's `lr` must be above 0: groups keep their ratio, got {first}")
        lr = self.schedule.lr_at(self.last_epoch)
        return [lr * (float(base) / first) for base in self.base_lrs]

    def state_dict(self) -> dict[str, Any]:
        """Plain values: loads under `weights_only`."""
        return {
            **{k: v for k, v in super().state_dict().items() if k != "schedule"},
            "schedule": self.schedule.to_json(),
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from `state_dict`."""
        super().load_state_dict({**state_dict, "schedule": Schedule.from_json(state_dict["schedule"])})
