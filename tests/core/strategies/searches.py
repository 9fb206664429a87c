"""States of a horizon search, made by hand."""

from __future__ import annotations

import numpy as np

from autolrs.core import engine
from autolrs.core.settings import Settings
from autolrs.core.strategies.horizon import Horizon
from autolrs.core.strategies.horizon_plan import mini_steps, ramp_steps
from autolrs.core.strategies.horizon_ramp import landmark
from autolrs.core.strategies.horizon_schedule import full_profile
from autolrs.core.types import Asked, Forecast, Probe, Probed

MINIS = [(-2, 1.0), (-3, 1.01), (-1, 1.2), (-4, 1.3)]


def searched(minis, scale=1.0, offset=0.0, validated=False, noise=0.0, total=5000, **values):
    """A state in which these miniature runs, (octave, loss, losses at the checks), have been answered.

    The ramp's losses fall from 2 to 1.65, differ from batch to batch by `noise`, and break out after 70 % of its steps.
    """
    config = Settings.make(total_steps=total, strategy="horizon", **values)
    now = engine.evolve(None, engine.start(config))
    steps = ramp_steps(config)
    batches = noise * np.random.default_rng(0).standard_normal(steps)
    fall = 0.5 / steps
    ramp = [offset + scale * ((2.0 - fall * i if i < 0.7 * steps else 9.0) + batches[i]) for i in range(steps)]
    now = engine.evolve(now, Asked(Horizon().decide(now)))
    now = engine.evolve(now, Probed(0, 0, 1.0, steps, tuple(ramp), Forecast(0, 0, 0, 0, "ok")))
    mark, each = landmark(now), mini_steps(config)
    for index, (octave, loss, *seen) in enumerate(minis, start=1):
        now = engine.evolve(now, Asked(Probe(0, index, full_profile(config, each, mark * 2.0**octave))))
        promise = Forecast(offset + scale * loss, 0, 0, 0, "ok")
        checks = tuple(offset + scale * value for value in seen)
        now = engine.evolve(now, Probed(0, index, mark * 2.0**octave, each, (), promise, int(validated), checks))
    return now


def ending(octave, loss):
    """A miniature run whose training loss goes there from the start, at about 2."""
    return (octave, loss, *np.linspace(1.99, loss, 8))
