"""Algorithm 1 as the paper prints it: nested loops, no engine, no journal. Read it first; tests hold the engine to it.

Line numbers in comments are Algorithm 1's. The curriculum of tau and the switch to validation loss are Section 4.4.
"""

from __future__ import annotations

import math
from typing import Protocol

from autolrs.core import curriculum, search
from autolrs.core.forecast import forecast_probe
from autolrs.core.schedule import Schedule
from autolrs.core.settings import Settings
from autolrs.core.types import Segment


class Trainer(Protocol):
    """What Algorithm 1 needs of a training; `autolrs.testing.SimulatedHost` is one."""

    def snapshot(self) -> int: ...
    def restore(self, token: int) -> None: ...
    def set_lr(self, lr: float) -> None: ...
    def step(self) -> float: ...
    def evaluate(self) -> float: ...


def run(settings: Settings, host: Trainer, *, validation: bool = False) -> Schedule:
    """The schedule that Algorithm 1 finds on `host`, with `settings.lr` and `settings.total_steps` given.

    `validation` turns on validation losses from the stage in which tau reaches tau_max.
    """
    if settings.lr == "auto" or settings.total_steps is None:
        raise ValueError("the reference needs `lr=(min, max)` and `total_steps`")
    segments: list[Segment] = []
    lr, step = settings.lr[0], 0
    while step < settings.total_steps:  # line 1
        stage = curriculum.plan(settings, len(segments), step, validation=validation)
        checkpoint = host.snapshot()  # line 3
        answers: list[tuple[float, float]] = []
        explored: list[tuple[float, float]] = []  # line 2: the GP; prior and posterior are functions of this list
        for _ in range(stage.n_probes):  # line 4
            candidate = search.propose(settings, settings.lr, explored, stage=stage.index)  # line 5
            host.set_lr(candidate)
            losses = []
            for t in range(1, stage.probe_steps + 1):  # line 6
                loss = host.step()
                if stage.metric == "train":
                    losses.append(loss)
                elif t % stage.eval_every == 0:
                    losses.append(host.evaluate())
            y = forecast_probe(settings, losses, stage.steps, stage.eval_every or 1).value  # line 7
            answers.append((candidate, y))
            worst = max(
                (y for _, y in answers if math.isfinite(y)), default=0.0
            )  # a diverged LR counts as the worst so far
            explored = [(x, y if math.isfinite(y) else worst) for x, y in answers]  # line 8
            host.restore(checkpoint)  # line 9
        finite = [(x, y) for x, y in answers if math.isfinite(y)]
        if finite:
            lr = finite[search.pick(settings, finite)][0]  # line 11
        elif any(x == lr for x, _ in answers):
            lr = settings.lr[0]  # nothing survived: the previous LR stays, unless it diverged itself
        host.set_lr(lr)
        for _ in range(stage.steps):  # line 12
            host.step()
        segments.append(Segment(stage.steps, lr, lr))
        step += stage.steps
    return Schedule(tuple(segments))
