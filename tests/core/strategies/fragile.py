"""A host whose run dies at LRs that the short probes survive."""

from __future__ import annotations

import math

from autolrs.testing.simulated import SimulatedHost


class Fragile(SimulatedHost):
    """Above `limit` the loss is not finite from 150 steps after a restore on."""

    limit, since, dead = 0.1, 0, False

    def restore(self, token):
        super().restore(token)
        self.since, self.dead = 0, False

    def step(self):
        loss = super().step()
        self.since += 1
        self.dead = self.dead or (self.since > 150 and self.lr > self.limit)
        return math.nan if self.dead else loss
