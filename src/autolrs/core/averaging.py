"""Weight averaging inside the training, in numbers: gradients are taken on the way to the average.

Schedule-Free's form (Defazio et al. 2024) around a schedule that still decays. z is what the optimizer moves, x the
average of its iterates, and the model is trained at y between them:

    z <- z + step         x <- x + c (z - x)         y = (1 - b) z + b x

x is what the training is for: the model gets it at the end, and validation sees it. Training at y acts as momentum, so
the optimizer's own is shared between the two: 1 - b = 1 - momentum' = sqrt(1 - momentum); all of it here, or in both
places, is worse (docs/research-log.md). Where that cannot be done, because an optimizer has no momentum, is built
around it or is unknown, b is 0: a plain average, which leaves the training as it is.

Adapters keep x and v = z - x, from before x moved towards z, and move them by `moves`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

SHARPNESS = 5.0  # step t weighs t^5: x is about the last sixth of the steps so far
PLAIN_SHARPNESS = 20.0  # where nothing but the end depends on x, a younger average is better
BY_CHANCE = 0.005  # of the validation loss: where y was ahead by no more, it was mostly behind in the test
AVERAGED_STEPS = 250  # below this, averaging was not measured (docs/research-log.md)


def by_default(total_steps: int | None) -> bool:
    """Whether a run of `horizon` averages unless it is told otherwise."""
    return (total_steps or 0) >= AVERAGED_STEPS


def share(momentum: float) -> float:
    """Half of a momentum: twice it is the whole.

    >>> round(share(0.9), 3), round(1 - (1 - share(0.9)) ** 2, 3)
    (0.684, 0.9)
    """
    return 1.0 - math.sqrt(1.0 - momentum)


def weight(steps: int, sharpness: float) -> float:
    """c of the iterate that follows `steps` others."""
    return (sharpness + 1.0) / (sharpness + 1.0 + steps)


@dataclass(frozen=True, slots=True)
class Moves:
    """After an optimizer step from y to y': v <- keep v + scale (y' - x), x <- x + c v, y = x + out v.

    Written with differences from x, a parameter that did not move stays what it is to the bit.
    """

    keep: float
    scale: float
    c: float
    out: float


def moves(steps: int, momentum: float, *, accumulates: bool) -> Moves:
    """How weights move after the optimizer step that follows `steps` others, where `momentum` is shared.

    `accumulates`: steps add up, as SGD's, and were longer with the whole momentum; z goes as far, so that the LR means
    what it meant. A step of Adam, which is a mean, has the same length with any momentum.

    >>> moves(0, 0.9, accumulates=False).out  # the first iterate is the average
    0.0
    """
    b = share(momentum)
    scale = (1.0 - b) / (1.0 - momentum) if accumulates else 1.0
    c, before = weight(steps, SHARPNESS), weight(steps - 1, SHARPNESS)
    return Moves((1.0 - before) * (1.0 - scale * (1.0 - b)), scale, c, (1.0 - b) * (1.0 - c))


def is_better(averaged: float, raw: float) -> bool:
    """Whether x is to be taken, by the validation losses of x and y: unless y is ahead by more than chance.

    >>> is_better(0.30, 0.31), is_better(0.300, 0.299), is_better(0.30, 0.29), is_better(math.inf, 0.3)
    (True, True, False, False)
    """
    if not math.isfinite(averaged):
        return not math.isfinite(raw)
    return not raw < averaged - BY_CHANCE * abs(averaged)
