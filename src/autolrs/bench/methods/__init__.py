"""What is compared, by name. How each is tuned, and on which seeds, is in `bench.tuning`."""

from __future__ import annotations

from autolrs.bench.methods import free, online, ours, schedules, search
from autolrs.bench.methods._method import Method, Outcome, Run

METHODS: dict[str, Method] = {
    method.name: method for module in (ours, schedules, online, free, search) for method in module.METHODS
}

__all__ = ["METHODS", "Method", "Outcome", "Run"]
