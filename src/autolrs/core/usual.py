"""What Adam and its like usually want of a network, by nothing but the sizes of its layers; SGD's; whether it is new.

Adam's steps have the size of the LR whatever the gradients are. What such a step does to a layer's output grows with
the number of its inputs, so the LR that a network bears falls with its width (Yang & Hu 2021). In the middle of the
layers that is close to what short runs turned out to want, and half of it what longer ones want, from widths of 16 to
512 (docs/research-log.md, "Short runs" and "What is usual in longer runs"). SGD's steps grow with gradients, which
norms keep within bounds; what momentum adds up counts ("What is usual of SGD").
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from statistics import geometric_mean

TIMES_INPUTS = 0.8  # the LR of a short run times the inputs of a layer; .6 to 1.1 do as well
OF_SGD = 0.6  # its LR times what momentum makes of a step, in networks with norms; half of it in longer runs


def of_window(channels: int, window: int) -> float:
    """As how many inputs a convolution counts: neighbours are alike, and so a window counts by the root of its size.

    >>> of_window(16, 9)
    48.0
    """
    return channels * math.sqrt(window)


def usual_lr(inputs: Iterable[float]) -> float | None:
    """.8 over the number of inputs to a layer, in the geometric mean over layers; None where there is none.

    >>> usual_lr([32, 128]), usual_lr([])
    (0.0125, None)
    """
    seen = [size for size in inputs if size > 0]
    return float(f"{TIMES_INPUTS / geometric_mean(seen):.3g}") if seen else None


def usual_lr_of_sgd(momentum: float) -> float | None:
    """.6 over what momentum makes of a step, which goes on for 1 / (1 - momentum) of them; None if that has no end.

    >>> usual_lr_of_sgd(0.9), usual_lr_of_sgd(0.0), usual_lr_of_sgd(1.0)
    (0.06, 0.6, None)
    """
    return float(f"{OF_SGD * (1.0 - momentum):.3g}") if momentum < 1.0 else None


def trained_before(differ: Iterable[bool]) -> bool:
    """Whether a network is not new, by its normalising layers: whether the scales of each differ. All begin as ones.

    >>> trained_before([True, True, False]), trained_before([True, False]), trained_before([])
    (True, False, False)
    """
    told = [*differ]
    return 2 * sum(told) > len(told)
