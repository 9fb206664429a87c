"""A found schedule as a few lines of Python to paste."""

from __future__ import annotations

import math

from autolrs.core.schedule import Schedule
from autolrs.core.types import Segment


def python_code(schedule: Schedule) -> str:
    """Code that makes the schedule and a PyTorch scheduler of it."""
    rows = "".join(
        f"        autolrs.Segment({s.steps}, {s.lr_start!r}, {s.lr_end!r}),\n" for s in merged(schedule).segments
    )
    return (
        "import autolrs\n\n"
        "schedule = autolrs.Schedule(\n    (  # steps, LR at the start, LR at the end\n"
        f"{rows}    )\n)\n"
        "scheduler = schedule.to_torch(optimizer)  # then scheduler.step() after every optimizer.step()\n"
    )


def merged(schedule: Schedule) -> Schedule:
    """The same schedule with pieces of one straight line joined.

    >>> merged(Schedule((Segment(10, 1.0, 0.5), Segment(10, 0.5, 0.0)))).segments
    (Segment(steps=20, lr_start=1.0, lr_end=0.0),)
    """
    joined: list[Segment] = []
    for segment in schedule.segments:
        last = joined[-1] if joined else None
        if last is not None and _straight(last, segment):
            joined[-1] = Segment(last.steps + segment.steps, last.lr_start, segment.lr_end)
        else:
            joined.append(segment)
    return Schedule(tuple(joined))


def _straight(a: Segment, b: Segment) -> bool:
    slope_a, slope_b = (a.lr_end - a.lr_start) / a.steps, (b.lr_end - b.lr_start) / b.steps
    return math.isclose(a.lr_end, b.lr_start, rel_tol=1e-12) and math.isclose(slope_a, slope_b, rel_tol=1e-9)
