"""The events of a long run without running it: a million steps of Algorithm 1 would take half a minute to simulate."""

from __future__ import annotations

import numpy as np

from autolrs.core import engine
from autolrs.core.settings import Settings
from autolrs.core.types import Asked, Commit, Committed, Event, Finished, Forecast, Probe, Probed, constant

SPIKE = 123.0


def long_events(total: int = 1_000_000, probes: int = 10) -> list[Event]:
    """Stages of up to 8000 steps with `probes` probes each; losses as the journal thins them, with one spike."""
    random = np.random.default_rng(0)
    settings = Settings(total_steps=total, lr=(1e-3, 1.0), n_probes=probes)
    events: list[Event] = [engine.start(settings, validation=True, versions={"autolrs": "0"})]
    done = stage = 0
    while done < total:
        steps = min(1000 << min(stage, 3), total - done)
        lrs = np.exp(random.uniform(np.log(1e-3), 0.0, probes))
        level = 2.0 / (1.0 + done / 5e4)
        for index, lr in enumerate(map(float, lrs)):
            profile = constant(max(4, steps // 10), lr)
            losses = tuple(level + 0.1 * random.standard_normal(128 if stage < 3 else 16))
            end = level * (0.8 + 0.1 * float(np.log(lr / 0.05) ** 2))
            fit = Forecast(end, level - end, -3.0 / steps, end, "ok")
            metric = ("train", 0) if stage < 3 else ("validation", 50)
            events.append(Asked(Probe(stage, index, profile, *metric)))
            events.append(Probed(stage, index, lr, profile[0].steps, losses, fit, 0 if stage < 3 else 16))
        profile = constant(steps, float(lrs[0]))
        losses = level + 0.1 * random.standard_normal(128)
        if stage == 40:
            losses[77] = SPIKE
        events += [Asked(Commit(stage, profile)), Committed(stage, profile, steps, tuple(map(float, losses)))]
        done, stage = done + steps, stage + 1
    return [*events, Finished("total_steps reached")]
