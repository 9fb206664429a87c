"""A greedy rule in the manner of GreedyLR (arXiv 2512.14527): up while the loss improves, down when it does not."""

from __future__ import annotations

import math

from torch.optim import Optimizer


class Greedy:
    """Divides the LR by `factor` after more than `patience` better losses in a row, multiplies after as many worse.

    A loss is better if it lies below the best so far by more than `threshold`; the LR stays within `bounds`.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        bounds: tuple[float, float],
        factor: float = 0.95,
        patience: int = 10,
        threshold: float = 1e-6,
    ) -> None:
        if not 0 < factor < 1:
            raise ValueError(f"`factor` must be 0 < factor < 1, got {factor}")
        self.optimizer, self.bounds = optimizer, bounds
        self.factor, self.patience, self.threshold = factor, patience, threshold
        self.best, self._better, self._worse = math.inf, 0, 0

    def step(self, loss: float) -> None:
        """Take note of a loss and move the LR if it is time; a loss that is not a number counts as worse."""
        if loss < self.best - self.threshold:
            self.best, self._better, self._worse = loss, self._better + 1, 0
        else:
            self._better, self._worse = 0, self._worse + 1
        if self._better > self.patience:
            self._move(1 / self.factor)
        elif self._worse > self.patience:
            self._move(self.factor)

    def _move(self, by: float) -> None:
        self._better = self._worse = 0
        low, high = self.bounds
        for group in self.optimizer.param_groups:
            group["lr"] = min(high, max(low, group["lr"] * by))
