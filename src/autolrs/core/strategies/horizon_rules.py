"""What searches of different runs do differently: long and short ones, of SGD and of others.

Up to 1000 steps miniature runs have the least steps that say anything, and there is money for few; those of SGD go by
a slow ramp instead (horizon_slow.py). Why, with measurements: docs/research-log.md, "Few miniature runs of few steps".
"""

from __future__ import annotations

import math
from typing import NamedTuple

from autolrs.core.settings import Settings
from autolrs.core.strategies.horizon_peak import DESCENTS, SHIFT_PER_DESCENT
from autolrs.core.strategies.horizon_plan import SHORTEST_WARMUP, is_short

LONG_WARMUP = 0.2  # of the run: takes the cliffs of a Transformer and of BERT away; .3 costs BERT 3 %
LONGEST_WARMUP = 0.3  # where nothing but the edge of divergence is known
START = -2  # octaves from the landmark, which lies at the edge of divergence, to where the best peak usually is


class Rules(NamedTuple):
    """Of one search."""

    first: tuple[int, ...]  # octaves from the landmark that are tried whatever they show
    learned: float = math.inf  # share of the loss that the best run may leave at most, or else none of them counts
    ranked: bool = False  # whether they count all the same where their LRs can be told apart
    off: float = 0.0  # octaves taken off the middle of the valley, besides the correction for the longer horizon
    deep: float = 0.0  # octaves less, per unit of descent beyond the usual
    # How far miniature runs came, from where on, up to where, and how many octaves more are taken off there: on a
    # plateau they know nothing of the way down.
    plateau: tuple[float, float, float] = (DESCENTS[0], 0.0, 0.0)
    # Shares of the run for the warm-up: where miniature runs came as far as usual, and where they hardly learned.
    warmup: tuple[float, float] = (SHORTEST_WARMUP, LONG_WARMUP)


LONG = Rules((START, START - 1))
# Above its best peak SGD loses little; others fall off a cliff. Beyond the usual descent it wants twice as much less
# taken off. Where a deep network has hardly begun to learn, which LR is ahead may be chance, and the edge of divergence
# knows more. Where it is not, runs are still on a plateau, which bears LRs that the way down from it does not.
LONG_SGD = LONG._replace(
    learned=math.exp(-DESCENTS[0]), ranked=True, off=-0.3, deep=SHIFT_PER_DESCENT, plateau=(DESCENTS[0], 0.0, 1.6)
)
# With norms a network turns any LR into what it bears, and high ones, which lose at first, look worse than they are.
LONG_SGD_NORMALISED = LONG_SGD._replace(plateau=(0.6, DESCENTS[0], -1.0))
# Cannot afford to look down before it knows the slope. At any LR a network unlearns its first mistakes.
# By its few probes it may end anywhere, and a longer warm-up forgives more.
SHORT = Rules((START, START + 1), learned=0.9, warmup=(0.15, LONG_WARMUP))


def rules(settings: Settings) -> Rules:
    """Those of this run's search."""
    if is_short(settings):
        return SHORT
    sgd = LONG_SGD_NORMALISED if settings.normalised else LONG_SGD
    return sgd if settings.proportional_steps else LONG


def off_by(kind: Rules, fall: float) -> float:
    """Octaves taken off besides the correction for the longer horizon, by how far miniature runs came.

    >>> [round(off_by(LONG_SGD, fall), 3) for fall in (0.15, 0.4, 1.2, 1.8, 2.4)]
    [0.7, -0.3, -0.3, -0.66, -0.66]
    >>> [round(off_by(LONG_SGD_NORMALISED, fall), 3) for fall in (0.15, 0.4, 0.5, 0.6)]
    [-1.3, -1.3, -0.8, -0.3]
    """
    _, usual, most = DESCENTS
    begin, end, more = kind.plateau
    return (
        kind.off
        - kind.deep * max(min(fall, most) - usual, 0.0)
        + more * min(max((begin - fall) / (begin - end), 0.0), 1.0)
    )


def warmup_by(kind: Rules, descent: float) -> float:
    """Which share of the run the warm-up takes: the more, the less far miniature runs came.

    >>> [round(warmup_by(LONG, descent), 3) for descent in (0.4, 0.8, 1.2, 1.8)]
    [0.2, 0.125, 0.05, 0.05]
    """
    (least, most), (little, usual, _) = kind.warmup, DESCENTS
    return least + (most - least) * max(usual - descent, 0.0) / (usual - little)
