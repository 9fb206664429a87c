"""What miniature runs came to, and which of them can be trusted."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from autolrs.core.engine import State
from autolrs.core.types import Aborted, Probed

TAIL = 0.3  # the last share of a miniature run, where the LR is small: what its training loss is judged by
RIDGE = 0.05  # of the progress; .033 is the highest in 280 searches on development tasks, by chance
SECOND_DIFFERENCE = 1.652  # the median size of x - 2y + z, where x, y and z have a standard deviation of 1
SAME_SCALE = 2.0  # a validation loss further than by this factor from the training loss measures something else


def minis(state: State) -> list[Probed | Aborted]:
    """The miniature runs that were answered: all probes but ramps, the first of which began the search."""
    return [probe for probe in state.probes[1:] if not probe.sweep]


def outcomes(state: State) -> list[tuple[Probed | Aborted, float]]:
    """Each miniature run and what it came to; infinite if it was stopped, and from the lowest LR on that did harm.

    That is the validation loss, if there is one. Progress is counted from the first training losses, however: where
    `evaluate` gives something else, on another scale, all are judged by their own training loss instead. From a ridge
    on, too, nothing is trusted.
    """
    runs, judge, harmful = minis(state), _judged if same_scale(state) else _trained, harmful_from(state)
    values = {probe.lr: judge(probe) for probe in runs if probe.lr < harmful}
    trusted = ridge(values, start(state))
    return [(probe, values[probe.lr] if probe.lr < min(harmful, trusted) else math.inf) for probe in runs]


def harmful_from(state: State) -> float:
    """The lowest LR at which a miniature run ended far above the start; infinite if there is none."""
    return min((probe.lr for probe in minis(state) if _harmful(state, probe)), default=math.inf)


def ridge(values: Mapping[float, float], start: float) -> float:
    """The lowest LR that did worse than a lower and a higher one by a share `RIDGE` of the progress; or infinity.

    A valley has one bottom: where there seem to be two, their order is chance, and whole runs want the lower one. Runs
    that were given up do not count: what they would have come to, beside the lower one, nobody knows.

    >>> ridge({0.01: 2.5, 0.02: 2.0, 0.04: 2.3, 0.08: 1.9, 0.16: 2.4}, 4.0)
    0.04
    """
    lrs, progress = sorted(values), start - min(values.values(), default=start)
    for i, lr in enumerate(lrs[1:-1] if progress > 0 else (), start=1):
        sides = min(values[low] for low in lrs[:i]), min(values[high] for high in lrs[i + 1 :])
        if math.isfinite(values[lr]) and values[lr] - max(sides) > RIDGE * progress:
            return lr
    return math.inf


def same_scale(state: State) -> bool:
    """Whether `evaluate` gave about the training loss of some miniature run that was judged by it, if there are any.

    That is, within a factor of it, and nearer to it than it is to the start (or than batches differ). One is enough:
    with BatchNorm a run whose LR is too high may have a low loss on its own batches and a high one beside them.
    """
    both = [(_judged(p), _trained(p)) for p in minis(state) if p.evaluations and math.isfinite(_trained(p))]
    return not both or any(
        _near(judged, trained, max(start(state) - trained, chance(state))) for judged, trained in both
    )


def _near(judged: float, trained: float, far: float) -> bool:
    low, high = sorted((trained / SAME_SCALE, trained * SAME_SCALE))
    return low <= judged <= high and abs(judged - trained) <= far


def _judged(probe: Probed | Aborted) -> float:
    return probe.forecast.value if isinstance(probe, Probed) else math.inf


def _trained(probe: Probed | Aborted) -> float:
    """The training loss over the tail; infinite if the run was stopped, or its journal is too old to tell."""
    return tail(probe.checks) if isinstance(probe, Probed) and probe.checks else math.inf


def tail(losses: Sequence[float]) -> float:
    """The mean of the last ones, where a miniature run's LR is small."""
    return float(np.mean(losses[-_in_tail(losses) :]))


def _in_tail(losses: Sequence[float]) -> int:
    return max(1, round(TAIL * len(losses)))


def lowest(state: State) -> float:
    """What the best miniature run came to."""
    return min(value for _, value in outcomes(state))


def learned(state: State, errors: float = 3.0) -> bool:
    """Whether the best miniature run came below the losses that the ramp began with by so many standard errors.

    Where it did not, as of a deep network on small batches, the order of miniature runs is chance. The error is that of
    a mean over the ramp's first batches and, where training losses judge, over those of a miniature run's tail, where
    they differ the less, the lower they are.
    """
    before, after = start_level(state), lowest(state)
    variance = 1 / (len(_first(state)) or 1)
    ended = [probe for probe in minis(state) if isinstance(probe, Probed)]
    if ended and (not same_scale(state) or not any(probe.evaluations for probe in ended)):
        share = min(after / before, 1.0) if before > 0 and after > 0 else 1.0
        variance += share**2 / max(1, round(TAIL * ended[0].steps))
    return before - after > errors * noise(state) * math.sqrt(variance)


def differ(state: State) -> bool:
    """Whether it matters which LR a miniature run has: their losses differ by more than three standard errors.

    That of the mean over a tail of other batches; on the same ones, as here, chance is less.
    """
    ended = [(value, probe.steps) for probe, value in outcomes(state) if math.isfinite(value)]
    if not ended:
        return False
    values = [value for value, _ in ended]
    return max(values) - min(values) > 3 * noise(state) / math.sqrt(max(1, round(TAIL * ended[0][1])))


def noise(state: State) -> float:
    """The standard deviation of a loss of the ramp, from batch to batch."""
    return deviation(state.probes[0].losses)


def deviation(losses: Sequence[float] | np.ndarray) -> float:
    """The standard deviation of losses from one to the next.

    By the median of second differences: what is learned meanwhile, and where it breaks out, does not count.
    """
    finite = np.array([*filter(math.isfinite, losses)])
    return float(np.median(np.abs(np.diff(finite, n=2)))) / SECOND_DIFFERENCE if finite.size > 2 else 0.0


def _harmful(state: State, probe: Probed | Aborted) -> bool:
    """Whether a miniature run ended far above the losses that the ramp began with, when its LR was next to 0.

    A new head says the same of every batch, whose losses do not differ then; once it has moved, they do. So it must lie
    above them by three standard errors of the calmest run's tail as well. Not with SGD, whose swings are its own.
    """
    losses = probe.checks if isinstance(probe, Probed) else probe.losses
    ends = [p.checks for p in minis(state) if isinstance(p, Probed) and not state.settings.proportional_steps]
    moved = min((deviation(checks) / math.sqrt(_in_tail(checks)) for checks in ends if checks), default=0.0)
    return bool(losses) and not tail(losses) <= max(far_above(state), max(_first(state), default=math.inf) + 3 * moved)


def far_above(state: State) -> float:
    """A loss beyond chance above those that the ramp began with, by their range once more."""
    return max(_first(state), default=math.inf) + chance(state)


def start_level(state: State) -> float:
    """The mean of the losses that the ramp began with; infinite if there is none."""
    return float(np.mean(_first(state) or [math.inf]))


def chance(state: State) -> float:
    """By how much batches differ: the range of the losses that the ramp began with."""
    first = _first(state)
    return max(first) - min(first) if first else 0.0


def _first(state: State) -> list[float]:
    losses = state.probes[0].losses
    return [*filter(math.isfinite, losses[: max(3, len(losses) // 4)])]


def start(state: State) -> float:
    """The loss before any training, by the ramp's first steps."""
    return float(np.mean(state.probes[0].losses[:3]))
