"""Numbers that the AutoLRS paper reports, to stand beside ours; transcribed from its tables, in per cent or epochs.

They come from full-size models on GPUs: beside figures of the `cpu` profile they show what was claimed, not a race.
"""

from __future__ import annotations

from typing import NamedTuple


class Compared(NamedTuple):
    """A row of the methods comparison."""

    accuracy: float  # best top-1 in 350 epochs
    seconds: int  # to find the schedule, on one Titan RTX


Trials = dict[
    int, tuple[tuple[int | None, float], ...]
]  # tau_max -> (epoch at which 93.70 % is reached, top-1 achieved)

# Section 5, "Experimental comparison to prior methods": VGG-16 on CIFAR-10
METHODS = {
    "hypergradient": Compared(91.31, 187_110),
    "marthe": Compared(92.99, 67_578),
    "hyperband": Compared(93.24, 109_454),
    "paper": Compared(94.13, 6_538),
}
HAND_TUNED = {"vgg16-cifar10": 93.70, "resnet50-cifar10": 95.56, "vgg16-cifar100": 72.93}  # Appendix A.5.1, A.5.2

# Section 5: fine-tuned BERT base on the dev sets of MRPC, MNLI (accuracy), CoLA (Matthews) and SQuAD v1.1 (F1)
FINE_TUNING = {
    "hand-tuned": {"MRPC": 86.5, "MNLI": 82.2, "CoLA": 47.8, "SQuAD": 87.0},
    "clr": {"MRPC": 86.0, "MNLI": 80.7, "CoLA": 44.4, "SQuAD": 86.5},
    "sgdr": {"MRPC": 84.8, "MNLI": 81.6, "CoLA": 38.7, "SQuAD": 86.2},
    "paper": {"MRPC": 88.0, "MNLI": 82.5, "CoLA": 47.6, "SQuAD": 87.1},
}

# Appendix A.5.2: sensitivity to tau_max; Appendix A.5.4: BO replaced. VGG-16 on CIFAR-10.
TAU_MAX: Trials = {
    4000: ((108, 94.13), (181, 93.96), (223, 94.07), (315, 93.82), (287, 94.09)),
    8000: ((115, 94.03), (265, 93.92), (203, 93.94), (194, 94.02), (305, 93.87)),
    16000: ((229, 93.77), (250, 93.95), (267, 93.73), (313, 93.71), (330, 93.82)),
}
RANDOM_SEARCH: Trials = {
    4000: ((199, 93.80), (209, 93.97), (298, 93.84)),
    8000: ((344, 93.71), (225, 93.98), (175, 93.91)),
    16000: ((None, 93.64), (316, 93.96), (310, 93.86)),
}
GRID_SEARCH: Trials = {
    4000: ((304, 93.88), (233, 93.88), (180, 93.91)),
    8000: ((239, 93.72), (296, 93.95), (None, 93.32)),
    16000: ((None, 93.02), (153, 93.78), (288, 93.70)),
}

# Appendix A.5.2: VGG-16 on CIFAR-100 over ten trials, top-1
VARIABILITY = (73.12, 73.20, 72.90, 72.93, 73.03, 73.16, 73.30, 72.85, 73.00, 72.97)

# Appendix A.5.1: top-1 of SGD with hypergradient descent; LRs 1e-6 to 1e-1 down, hypergradient LRs 1e-6 to 1e-1 across
HYPERGRADIENT = {
    "vgg16-cifar10": (
        (86.13, 88.79, 86.31, 90.70, 10.30, 10.00),
        (86.14, 88.49, 87.67, 88.70, 10.22, 10.00),
        (86.09, 88.82, 86.63, 10.22, 10.02, 10.00),
        (86.13, 88.78, 90.74, 44.12, 88.48, 10.00),
        (91.69, 88.53, 89.11, 10.07, 10.00, 10.00),
        (91.80, 91.48, 88.81, 90.42, 11.24, 10.00),
    ),
    "resnet50-cifar10": (
        (83.67, 88.75, 83.77, 71.03, 10.11, 10.00),
        (83.99, 89.15, 10.12, 19.73, 10.03, 10.00),
        (84.98, 89.27, 84.36, 88.72, 10.00, 10.00),
        (83.22, 88.56, 86.00, 10.10, 42.80, 10.00),
        (92.40, 88.51, 90.72, 10.19, 10.05, 10.00),
        (92.18, 92.52, 87.74, 84.32, 10.00, 10.00),
    ),
}
