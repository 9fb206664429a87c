"""Tasks: nine small ones, tables of numbers, short runs, fine-tuning, ordinary jobs, SGD, many kinds, the paper's.

Defaults may be chosen on the small ones with `held_out=False` only; the others check what was chosen. The paper's have
profiles: `paper` is the real thing, `cpu` and `smoke` are narrow members of the same code on data that packages bring.
"""

from __future__ import annotations

from autolrs.bench.tasks import (
    autoencoder,
    bert,
    cifar,
    deep,
    digits,
    finetune,
    images,
    kinds,
    language,
    ordinary,
    priors,
    sgd,
    short,
    tables,
    translation,
)
from autolrs.bench.tasks._task import PROFILES, Bundle, Task

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
        *tables.TABLES,
        *short.SHORT,
        *finetune.FINETUNE,
        *ordinary.ORDINARY,
        *deep.DEEP,
        *priors.PRIORS,
        *sgd.SGD_TASKS,
        *kinds.KINDS,
        cifar.VGG_CIFAR10,
        cifar.VGG_CIFAR100,
        cifar.RESNET_CIFAR10,
        cifar.RESNET_IMAGENET,
        translation.TRANSFORMER_WMT14,
        bert.BERT,
    )
}
PAPER_TASKS = tuple(name for name, task in TASKS.items() if "paper" in task.profiles)

__all__ = ["PAPER_TASKS", "PROFILES", "TASKS", "Bundle", "Task"]
