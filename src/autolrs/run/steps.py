"""What a step tells the loop that took it."""

from __future__ import annotations

from typing import NamedTuple


class StepInfo(NamedTuple):
    """What the step just taken was."""

    lr: float  # it ran at this LR
    exploring: bool  # it belonged to a probe and will be undone
    committed_steps: int  # after it
    raw_steps: int
    done: bool
    counted: bool = True  # False: mixed precision skipped it, or the run was over


class RunIsOverError(RuntimeError):
    """A step was counted outside a run."""
