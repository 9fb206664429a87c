"""What is known of a model before anything is tried: its usual LR, whether it has norms, and whether it is new."""

from __future__ import annotations

import math
from typing import Any

import keras

from autolrs.core import usual
from autolrs.keras_.host import numpy_of

SCALE_FREE = (keras.optimizers.Adam, keras.optimizers.Nadam)  # AdamW is an Adam


def usual_lr(model: Any, optimizer: Any) -> float | None:
    """That of the model's layers (`core/usual.py`) with Adam and its like, or of SGD where there are norms; or None.

    Tables of embeddings do not count: whatever their size, a step changes the rows that were looked up.
    """
    if isinstance(optimizer, keras.optimizers.SGD) and normalised(model):
        return usual.usual_lr_of_sgd(optimizer.momentum)
    if not isinstance(optimizer, SCALE_FREE):
        return None
    layers = model._flatten_layers(include_self=False)
    kernels = [
        (layer, variable.shape)
        for layer in layers
        if not isinstance(layer, keras.layers.Embedding)
        for variable in layer._trainable_variables
        if variable.trainable and len(variable.shape) > 1 and variable is not getattr(layer, "bias", None)
    ]
    return usual.usual_lr(_inputs(layer, shape) for layer, shape in kernels)


def uncorrected(optimizer: Any) -> float | None:
    """What RMSprop keeps of its squares from step to step, 1 of an Adagrad whose sum begins at 0, whose first steps are
    large (`core/first_steps.py`); None for all others."""
    if isinstance(optimizer, keras.optimizers.RMSprop):
        return float(optimizer.rho)
    whole = isinstance(optimizer, keras.optimizers.Adagrad) and not optimizer.initial_accumulator_value
    return 1.0 if whole else None


def _inputs(layer: Any, shape: tuple[int, ...]) -> float:
    """Kernels have their outputs last, but for those of EinsumDense, as in attention, whose equation says what is."""
    if isinstance(layer, keras.layers.EinsumDense):
        operands, outputs = layer.equation.split("->")
        names = operands.split(",")[1]
        return math.prod(size for name, size in zip(names, shape, strict=True) if name not in outputs)
    return usual.of_window(shape[-2], math.prod(shape[:-2]))


def normalised(model: Any) -> bool:
    """Whether the model has layers that normalise what passes through them."""
    return bool(_norms(model))


def trained_before(model: Any) -> bool:
    """Whether most of the model's normalising layers have scales that differ: they all begin as ones."""
    told = (numpy_of(weight) for norm in _norms(model) for weight in norm.weights if weight.name in ("gamma", "scale"))
    return usual.trained_before(bool((scale != scale.flat[0]).any()) for scale in told)


def _norms(model: Any) -> list[Any]:
    """`keras.layers.Normalization`, which scales inputs and is not trained, is none of them."""
    layers = model._flatten_layers(include_self=False)
    return [one for one in layers if "Normalization" in type(one).__name__ and type(one).__name__ != "Normalization"]
