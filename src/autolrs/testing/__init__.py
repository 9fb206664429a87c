"""For tests of ours and of others' adapters: a simulated training, and the suite that every adapter must pass."""

from autolrs.testing.conformance import host_conformance
from autolrs.testing.simulated import SimulatedHost

__all__ = ["SimulatedHost", "host_conformance"]
