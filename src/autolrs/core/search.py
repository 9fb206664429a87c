"""Which LR to try next, and which one won (Section 4.1): LCB over the log interval, or the ablations random and grid.

All are functions of what was explored, so the same past always gives the same proposal.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from autolrs.core.gp import Posterior
from autolrs.core.settings import Settings

_GRID = 513  # at six decades two neighbours differ by 2.7 %, and refinement goes on from there


def propose(
    settings: Settings,
    interval: tuple[float, float],
    explored: Sequence[tuple[float, float]],
    outstanding: Sequence[float] = (),
    *,
    stage: int = 0,
) -> float:
    """The next LR to probe in `interval`, given `explored` pairs (LR, loss) and the LRs of probes still `outstanding`.

    >>> round(propose(Settings(), (1e-3, 1e-1), []), 6)
    0.01
    """
    index = len(explored) + len(outstanding)
    low, high = math.log(interval[0]), math.log(interval[1])
    if settings.search == "grid":
        x = low + (high - low) * (index / (settings.n_probes - 1) if settings.n_probes > 1 else 0.5)
    elif settings.search == "random" or (index == 0 and settings.first_lr == "random"):
        x = low + (high - low) * float(np.random.default_rng([settings.seed, stage, index]).random())
    elif index == 0:
        x = 0.5 * (low + high) if isinstance(settings.first_lr, str) else math.log(settings.first_lr)
    else:
        x = _lowest_bound(_believer(settings, explored, outstanding), low, high, settings.kappa)
    return min(max(math.exp(x), interval[0]), interval[1])


def pick(settings: Settings, explored: Sequence[tuple[float, float]]) -> int:
    """Index of the winner: lowest posterior mean among the explored LRs (or lowest forecast with `winner="raw"`).

    A tie goes to the lower LR.
    """
    x = np.log([lr for lr, _ in explored])
    y = np.array([loss for _, loss in explored])
    mean = (
        y
        if settings.winner == "raw"
        else Posterior(x, y, noise=settings.noise, length_scale=settings.length_scale)(x)[0]
    )
    return int(np.lexsort((x, mean))[0])


def _believer(settings: Settings, explored: Sequence[tuple[float, float]], outstanding: Sequence[float]) -> Posterior:
    """The posterior, with each outstanding LR taken at its own predicted mean (kriging believer)."""
    x = np.log([lr for lr, _ in explored])
    y = np.array([loss for _, loss in explored], float)
    for lr in outstanding:
        believed = Posterior(x, y, noise=settings.noise, length_scale=settings.length_scale)([math.log(lr)])[0]
        x, y = np.append(x, math.log(lr)), np.append(y, believed)
    return Posterior(x, y, noise=settings.noise, length_scale=settings.length_scale)


def _lowest_bound(posterior: Posterior, low: float, high: float, kappa: float) -> float:
    """argmin of mu - kappa sigma on [low, high]: a dense grid, then finer ones around its best; lower LRs win ties."""
    for size in (_GRID, 33, 33):
        grid = np.linspace(low, high, size)
        mean, std = posterior(grid)
        best = int(np.argmin(mean - kappa * std))
        low, high = grid[max(best - 1, 0)], grid[min(best + 1, size - 1)]
    return float(grid[best])
