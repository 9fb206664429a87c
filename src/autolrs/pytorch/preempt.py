"""A durable point when the process is asked to end: SIGTERM, as schedulers and `torchrun` send it before they kill.

The handler only makes the next `auto.step` look closer, so that a step costs nothing until then. Ranks get the signal
at different steps: each says in the group's store at which step it heard, and two steps after the last of them, at a
step that all know before they reach it (gradients are exchanged in every step), they write. Then the signal goes where
it would have gone; also when no step comes any more.
"""

from __future__ import annotations

import os
import signal
import threading
import uuid
import weakref
from typing import TYPE_CHECKING, Any

import torch.distributed as dist

from autolrs.run.comm import first

if TYPE_CHECKING:
    from autolrs.pytorch.auto import AutoLRS
    from autolrs.run.steps import StepInfo

_AHEAD = 2  # steps from the last rank's word to the durable point
_PATIENCE = 20.0  # seconds until the signal is passed on without one; `torchrun` kills after 30

_watched: weakref.WeakSet[_Watch] = weakref.WeakSet()
_before: Any = None  # the handler that ours stands in front of


def watch(auto: AutoLRS) -> _Watch | None:
    """Write a durable point of this run on SIGTERM; keep what is returned. Only a main thread can hear signals."""
    made = _Watch(auto)
    if threading.current_thread() is not threading.main_thread():
        return None
    global _before
    if signal.getsignal(signal.SIGTERM) is not _handle:
        _before = signal.signal(signal.SIGTERM, _handle)
    _watched.add(made)
    return made


def _handle(number: int, frame: Any) -> None:
    waiting = [one for one in _watched if one.hear()]
    if not waiting:
        _pass_on(number, frame)


def _pass_on(number: int, frame: Any) -> None:
    if callable(_before):
        _before(number, frame)
    elif _before != signal.SIG_IGN:
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)


class _Watch:
    """One run that waits for the signal."""

    def __init__(self, auto: AutoLRS) -> None:
        self._auto = weakref.ref(auto)
        # Under a name of its own: the store outlives a restart, and with it the words of the ranks before.
        self._key = first(auto.comm, lambda: f"autolrs/{uuid.uuid4().hex}", "the start") if auto.comm.size > 1 else ""
        self._heard = False
        self._alarm: threading.Timer | None = None

    def hear(self) -> bool:
        """From the handler: whether this run will write a point first. A second signal does not wait for it."""
        auto = self._auto()
        if auto is None or auto.done or self._heard:
            return False
        self._heard = True
        auto.step = self._step  # type: ignore[method-assign]
        self._alarm = threading.Timer(_PATIENCE, os.kill, (os.getpid(), signal.SIGTERM))
        self._alarm.daemon = True
        self._alarm.start()
        return True

    def _step(self, loss: Any) -> StepInfo:
        auto = self._auto()
        assert auto is not None
        info = type(auto).step(auto, loss)
        due = info.done or self._due(auto)
        if due is None:
            return info
        del auto.__dict__["step"]
        self._heard = False
        if self._alarm is not None:
            self._alarm.cancel()
        if due and not info.done:  # the end of a run is a durable point already
            auto.session.note(f"SIGTERM: a durable point after {auto.raw_steps} steps in all")
            auto.save_point()
        _pass_on(signal.SIGTERM, None)
        return info

    def _due(self, auto: AutoLRS) -> bool | None:
        """Whether this is the step to write at; None before it."""
        comm, now = auto.comm, auto.raw_steps
        if comm.size == 1:
            return True
        store = dist.distributed_c10d._get_default_store()
        keys = [f"{self._key}/{rank}" for rank in range(comm.size)]
        if not store.check([keys[comm.rank]]):
            store.set(keys[comm.rank], str(now))
        if not store.check(keys):
            return None
        at = max(int(store.get(key)) for key in keys) + _AHEAD
        return None if now < at else now == at
