"""One figure of the overhead table."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """One figure, its bar, and the raw repetitions it is the median of."""

    name: str
    value: float
    bar: float
    unit: str
    beside: str  # what was measured beside it
    raw: dict[str, list[float]]

    @property
    def within(self) -> bool:
        """Whether the bar is met."""
        return self.value <= self.bar
