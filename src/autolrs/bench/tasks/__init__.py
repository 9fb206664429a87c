"""Development tasks: small real workloads of different kinds, a full run of each in seconds on one core.

Defaults may be chosen on those with `held_out=False` only; the others check what was chosen.
"""

from __future__ import annotations

from autolrs.bench.tasks import autoencoder, digits, images, language
from autolrs.bench.tasks._task import Bundle, Task

TASKS: dict[str, Task] = {
    task.name: task
    for task in (
        images.MLP,
        images.CNN,
        language.TRANSFORMER,
        language.LSTM,
        autoencoder.AUTOENCODER,
        digits.MLP,
        digits.CNN,
        images.VIT,
        language.GRU,
    )
}

__all__ = ["TASKS", "Bundle", "Task"]
