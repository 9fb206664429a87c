"""An analytic noisy training problem: what a network does to a scheduler, without a network.

SGD on a quadratic with a spectrum of curvatures and gradient noise, in expectation: every coordinate's mean square v
follows v <- (1 - lr * h)^2 v + lr^2 * noise. Small LRs are slow, large ones hit a noise floor that a decay lowers, and
an LR above 2 / max(h) diverges. The observed loss adds batch noise that depends on the seed and the data position
alone, so batches can be replayed.
"""

from __future__ import annotations

import json
import math
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


class SimulatedHost:
    """A `TrainingHost` and a `Stream` with a known best LR.

    Args:
        problem: `quadratic` (curvatures spread geometrically over two decades) or `power` (a power law over four: slow
            tails).
        noise: gradient noise; sets the floor of the loss at a given LR.
        batch_noise: relative noise of each observed training loss.
        seed: of the batch noise.
        offset: added to every loss, so that nothing relies on losses near 0.

    >>> host = SimulatedHost(seed=1)
    >>> host.set_lr(0.1)
    >>> first = host.step()
    >>> first > [host.step() for _ in range(200)][-1]
    True
    """

    def __init__(
        self,
        seed: int = 0,
        problem: Literal["quadratic", "power"] = "quadratic",
        *,
        dimensions: int = 12,
        noise: float = 0.02,
        batch_noise: float = 0.03,
        offset: float = 0.1,
    ) -> None:
        if problem not in ("quadratic", "power"):
            raise ValueError(f"`problem` must be one of quadratic, power; got {problem!r}")
        decades = 2.0 if problem == "quadratic" else 4.0
        self.curvature: Array = np.geomspace(1.0, 10.0**-decades, dimensions)
        self.mean_square: Array = (np.ones(dimensions) if problem == "quadratic" else self.curvature**-0.5) * 2.0
        self._gradient_noise = noise * self.curvature
        self._batch_noise, self._offset, self._seed = batch_noise, offset, seed
        self._half = 0.5 * self.curvature
        self.lr = 0.0
        self.first_lrs: list[float] = []  # LR of the first step after every restore
        self._restored = False
        self.position, self._mark = 0, 0
        self._noise_block, self._noise_values = -1, np.zeros(0)
        self._tokens: dict[int, tuple[Array, float]] = {}
        self._next_token = 0
        self.steps = 0

    # TrainingHost

    def step(self) -> float:
        """One step; returns the batch's loss before it, as a forward pass would."""
        if self._restored:
            self.first_lrs.append(self.lr)
            self._restored = False
        loss = self.loss() + self._offset
        loss *= 1.0 + self._batch_noise * self._noise()
        with np.errstate(over="ignore", invalid="ignore"):
            shrink = 1.0 - self.lr * self.curvature
            self.mean_square = shrink * shrink * self.mean_square + self.lr * self.lr * self._gradient_noise
        self.position += 1
        self.steps += 1
        return loss

    def snapshot(self) -> int:
        """Save the state, LR included."""
        self._next_token += 1
        self._tokens[self._next_token] = (self.mean_square.copy(), self.lr)
        return self._next_token

    def restore(self, token: int) -> None:
        """Put a saved state back, LR included, as optimizers do."""
        self.mean_square, self.lr = self._tokens[token][0].copy(), self._tokens[token][1]
        self._restored = True

    def release(self, token: int) -> None:
        """Forget a saved state."""
        del self._tokens[token]

    def set_lr(self, lr: float) -> None:
        """Set the LR of the next step."""
        self.lr = lr

    def evaluate(self) -> float:
        """Expected loss without batch noise."""
        return self.loss() + self._offset

    # PortableHost

    def dumps(self) -> bytes:
        """The state and the data position; JSON keeps floats to the bit."""
        values = {"mean_square": self.mean_square.tolist(), "lr": self.lr, "position": self.position}
        return json.dumps({**values, "mark": self._mark}).encode()

    def loads(self, data: bytes) -> None:
        """Stand where `dumps` was called."""
        values = json.loads(data)
        self.mean_square, self.lr = np.array(values["mean_square"]), values["lr"]
        self.position, self._mark = values["position"], values["mark"]

    # Position in the data, and Stream

    class Data:
        """The host's data as a `Stream`."""

        def __init__(self, host: SimulatedHost) -> None:
            self._host = host

        def mark(self) -> None:
            """Remember this position."""
            self._host._mark = self._host.position

        def position(self) -> int:
            """Batches since the mark."""
            return self._host.position - self._host._mark

        def rewind(self, position: int = 0) -> None:
            """Back to the mark, or to `position` batches after it."""
            self._host.position = self._host._mark + position

        def forget(self) -> None:
            """Nothing is cached, so nothing is to be done."""

    @property
    def stream(self) -> SimulatedHost.Data:
        """The data as a stream that can be rewound."""
        return SimulatedHost.Data(self)

    # What is known exactly

    def loss(self) -> float:
        """Expected training loss above the offset."""
        with np.errstate(over="ignore", invalid="ignore"):
            return float(self._half @ self.mean_square)

    def loss_after(self, steps: int, lr: float) -> float:
        """Expected loss after `steps` more steps at a constant LR, in closed form."""
        with np.errstate(over="ignore", invalid="ignore"):
            rate = (1.0 - lr * self.curvature) ** 2
            final = rate**steps
            # Noise adds up as a geometric series, which at rate 1 (an LR of 0 or of exactly 2 / h) is plain counting.
            total = np.divide(1.0 - final, 1.0 - rate, out=np.full(rate.shape, float(steps)), where=rate != 1.0)
            value = final * self.mean_square + total * lr * lr * self._gradient_noise
        loss = float(self._half @ value)
        return loss if math.isfinite(loss) else math.inf

    def best_lr(self, steps: int, interval: tuple[float, float]) -> float:
        """The constant LR in `interval` with the lowest loss after `steps` more steps: what a stage should choose."""
        grid = np.geomspace(*interval, 2001)
        return float(grid[int(np.argmin([self.loss_after(steps, lr) for lr in grid]))])

    def _noise(self) -> float:
        """Batch noise at the present data position: a function of seed and position alone."""
        block, offset = divmod(self.position, 4096)
        if block != self._noise_block:
            self._noise_values = np.random.default_rng([self._seed, block]).standard_normal(4096)
            self._noise_block = block
        return float(self._noise_values[offset])
