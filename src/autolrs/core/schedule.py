"""A found LR schedule: look it up, save it, and hand it to a framework to train again at 1x the cost."""

from __future__ import annotations

import csv
import json
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autolrs.core.types import Profile, Segment, profile_steps

SCHEMA = 1


@dataclass(frozen=True)
class Schedule:
    """Segments in order. Past the end the last LR stays, so that one step too many never crashes a run.

    >>> schedule = Schedule((Segment(10, 0.0, 1.0), Segment(10, 1.0, 0.0)))
    >>> schedule.total_steps, schedule.lr_at(5), schedule.lr_at(10), schedule.lr_at(99)
    (20, 0.5, 1.0, 0.0)
    """

    segments: Profile
    _ends: tuple[int, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "segments", tuple(self.segments))
        object.__setattr__(self, "_ends", tuple(accumulate(segment.steps for segment in self.segments)))

    @property
    def total_steps(self) -> int:
        """Number of steps."""
        return profile_steps(self.segments)

    def lr_at(self, step: int) -> float:
        """LR of step `step`, counted from 0."""
        if step < 0:
            raise ValueError(f"`step` must not be negative, got {step}")
        if not self.segments:
            raise ValueError("the schedule is empty: no step was committed")
        i = bisect_right(self._ends, step)
        if i == len(self.segments):
            return self.segments[-1].lr_end
        segment = self.segments[i]
        return segment.lr_at(step - (self._ends[i] - segment.steps))

    def lrs(self) -> NDArray[np.float64]:
        """LR of every step, shape (total_steps,)."""
        parts = [s.lr_start + (s.lr_end - s.lr_start) * (np.arange(s.steps) / s.steps) for s in self.segments]
        return np.concatenate(parts) if parts else np.zeros(0)

    def _table(self) -> NDArray[np.float64]:
        """LR of every step and of all after the end. Looked up, an LR is the very one that a run was given."""
        if not self.segments:
            raise ValueError("the schedule is empty: no step was committed")
        return np.append(self.lrs(), self.segments[-1].lr_end)

    def to_json(self) -> dict[str, Any]:
        """Plain values, with the schema's version."""
        rows = [[s.steps, s.lr_start, s.lr_end] for s in self.segments]
        return {"autolrs_schedule": SCHEMA, "total_steps": self.total_steps, "segments": rows}

    @classmethod
    def from_json(cls, values: Any) -> Schedule:
        """The inverse of `to_json`; a foreign or newer file is a ValueError that says which."""
        version = values.get("autolrs_schedule") if isinstance(values, dict) else None
        if not isinstance(version, int):
            raise ValueError("not an autolrs schedule: the key 'autolrs_schedule' is missing")
        if version > SCHEMA:
            raise ValueError(f"the schedule has schema {version}; this autolrs reads up to {SCHEMA}: upgrade autolrs")
        try:
            return cls(tuple(Segment(int(n), float(a), float(b)) for n, a, b in values["segments"]))
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"not an autolrs schedule: its segments cannot be read ({error!r})") from None

    def save(self, path: str | Path) -> None:
        """Write as JSON."""
        Path(path).write_text(json.dumps(self.to_json()) + "\n")

    @classmethod
    def load(cls, path: str | Path) -> Schedule:
        """Read what `save` wrote."""
        try:
            values = json.loads(Path(path).read_text())
        except ValueError as error:  # not JSON, or not even text
            raise ValueError(f"{path} is not an autolrs schedule: {error}") from None
        return cls.from_json(values)

    def to_csv(self, path: str | Path) -> None:
        """Write `step,lr` rows, one per step."""
        with open(path, "w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["step", "lr"])
            writer.writerows((step, repr(float(lr))) for step, lr in enumerate(self.lrs()))

    # Exports live with their adapters; these are the one place where core names them, and only when called.

    def to_torch(self, optimizer: Any) -> Any:
        """A picklable `torch.optim.lr_scheduler.LRScheduler`; parameter groups keep their LR ratios to the first."""
        from autolrs.pytorch.schedulers import ScheduleLR

        return ScheduleLR(optimizer, self)

    def to_optax(self) -> Callable[[Any], Any]:
        """An Optax schedule: a traceable function of the step count."""
        try:
            import jax.numpy as jnp
        except ImportError as error:
            raise ImportError("to_optax needs JAX: pip install 'autolrs[jax]'") from error
        table = jnp.asarray(self._table())

        def schedule(count: Any) -> Any:
            return table[jnp.minimum(count, self.total_steps)]

        return schedule

    def to_keras(self) -> Any:
        """A Keras 3 `LearningRateSchedule`."""
        try:
            import keras
        except ImportError as error:
            raise ImportError("to_keras needs Keras: pip install 'autolrs[keras]'") from error
        return _keras_schedule(keras, self)


def _keras_schedule(keras: Any, schedule: Schedule) -> Any:
    ops = keras.ops
    table = schedule._table().astype("float32")

    class AutoLRSSchedule(keras.optimizers.schedules.LearningRateSchedule):  # type: ignore[misc]
        """Piecewise linear, as found by autolrs."""

        def __call__(self, step: Any) -> Any:
            step = ops.minimum(ops.cast(step, "int32"), schedule.total_steps)
            return ops.take(ops.convert_to_tensor(table), step)

        def get_config(self) -> dict[str, Any]:
            return {"schedule": schedule.to_json()}

    return AutoLRSSchedule()
