"""What adapters that average weights have in common: when a step goes into the average, and what the model ends with.

The numbers are those of `core/averaging.py`; how weights are moved and put into the model is the adapter's.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from functools import partial
from typing import Any, Protocol

from autolrs.core.averaging import is_better
from autolrs.core.strategies.horizon_plan import compares
from autolrs.core.types import Averaged
from autolrs.run.comm import average
from autolrs.run.session import Session


class Averager(Protocol):
    """The average of a training's weights; part of the host's snapshots, so that probes and failed stretches undo it.

    The host's `evaluate` sees x inside `averaged`, and with `raw=True` y.
    """

    @property
    def begun(self) -> bool:
        """Whether there is an average."""

    def update(self) -> None:
        """After an optimizer step: take it into the average and put the model at y."""

    def averaged(self) -> AbstractContextManager[None]:
        """The model holds x inside, and what it held before after it."""

    def finish(self, *, average: bool) -> None:
        """Leave x in the model (or y) and give the optimizer its momentum back. Steps after it begin a new average."""


def goes_into(averager: Averager, session: Session) -> bool:
    """Whether the step just made does: every committed one, and those of probes part-way, which go on from there."""
    return not session.done and (averager.begun or not session.exploring)


def hand_over(averager: Averager, session: Session, host: Any) -> None:
    """At the end: give the model its averaged weights, unless by validation those it was trained at are better."""
    if not session.state.validation or not compares(session.state.settings):
        averager.finish(average=True)
        session.record(Averaged(True))
        return
    averaged = average(session.comm, host.evaluate, "`evaluate`")
    raw = average(session.comm, partial(host.evaluate, raw=True), "`evaluate`")
    used = is_better(averaged, raw)
    averager.finish(average=used)
    session.record(Averaged(used, raw, averaged))
