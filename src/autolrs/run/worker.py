"""One worker of a parallel run: it builds the training, stands where it is told to, and carries out one command a time.

A command is carried out by `Session`'s own code, so a probe here is what a probe on a single host is. Which command
comes next is the driver's business (`run/parallel.py`), and how jobs and states travel is the pool's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from autolrs.core.engine import State, Strategy
from autolrs.core.settings import Settings
from autolrs.core.types import Commit, Committed, Event, Probe
from autolrs.run.averages import Averager, goes_into, hand_over
from autolrs.run.comm import Comm
from autolrs.run.host import PortableHost
from autolrs.run.session import Session

Handle = Any  # what a pool gives for a state that travels: the bytes themselves, or where they are kept

NO_AVERAGER = (
    "`averaging` must be off where the training has no averager (a PyTorch one has, unless its optimizer averages "
    "itself), got True"
)


@dataclass(frozen=True, slots=True)
class Job:
    """A command to carry out from the state `start`, which is known by the number `key`.

    `kept` is the end state of the probe that the command goes on from, where there is one. The state that a commit ends
    with is known by the job's own `number`.
    """

    number: int
    command: Probe | Commit
    state: State
    strategy: Strategy
    key: int
    start: Handle
    kept: Handle | None = None


@dataclass(frozen=True, slots=True)
class Introduction:
    """What a worker says about its training before the run begins."""

    validation: bool
    base_lr: float | None
    start: bytes
    usual_lr: float | None = None
    proportional_steps: bool = False
    rectified: float | None = None
    uncorrected: float | None = None
    normalised: bool = False
    trained_before: bool = False
    averages: bool = False


class Worker:
    """Carries out jobs on one host; with `comm` as one of several ranks, who are all given the same job."""

    def __init__(self, host: PortableHost, comm: Comm | None = None) -> None:
        self.host, self._comm = host, comm
        self._errand: _Errand | None = None
        self._key: int | None = None  # of the state that the host's snapshot, or the host itself, stands at
        self._prepared = False

    def introduce(self, settings: Settings) -> Introduction:
        """What the training is like, and the state it starts from."""
        self._prepare(settings)
        host = self.host

        def says(name: str) -> bool:
            return bool(getattr(host, name, False))

        base_lr, usual_lr = getattr(host, "base_lr", None), getattr(host, "usual_lr", None)
        first_steps = getattr(host, "rectified", None), getattr(host, "uncorrected", None)
        known = usual_lr, says("proportional_steps"), *first_steps, says("normalised"), says("trained_before")
        averages = getattr(host, "averager", None) is not None
        return Introduction(says("validation"), base_lr, host.dumps(), *known, averages)

    def run(self, job: Job, fetch: Callable[[Handle], bytes]) -> tuple[list[Event], bytes | None]:
        """Carry `job` out: its events, and its end state where that is needed. `fetch` gets a state that travelled."""
        errand = self._errand
        if errand is None:
            self._prepare(job.state.settings)
            errand = self._errand = _Errand(self.host, job, self._comm)
        errand.state, errand.strategy, errand.events = job.state, job.strategy, []
        key, self._key = self._key, None  # should the job fail, nobody knows where the host stands
        if job.kept is not None:
            assert job.command.start_from is not None
            errand.move(fetch(job.kept), job.command.start_from)
        elif key != job.key:
            errand.move(fetch(job.start))
        errand.carry_out(job.command)
        if isinstance(job.command, Commit):
            self._key = job.number
            return errand.events, self.host.dumps() if errand.comm.rank == 0 else None
        self._key = None if job.kept is not None else job.key
        # Others may be answered meanwhile, so the driver decides what is kept; here only what can never be is left out.
        alone = replace(errand.state, probes=errand.state.probes[-1:])
        return errand.events, self.host.dumps() if job.strategy.retained(alone) else None

    def _prepare(self, settings: Settings) -> None:
        prepare = getattr(self.host, "prepare", None)
        if prepare is not None and not self._prepared:
            prepare(settings, self._note)
        self._prepared = True

    def _note(self, message: str) -> None:
        if self._errand is not None:
            self._errand.note(message)


class _Errand(Session):
    """A session that is told its commands one by one."""

    def __init__(self, host: PortableHost, job: Job, comm: Comm | None) -> None:
        settings, validation = job.state.settings, job.state.validation
        stream = getattr(host, "stream", None) if settings.replay else None
        read = getattr(host, "read", None)
        super().__init__(host, settings, job.strategy, validation=validation, stream=stream, read=read, comm=comm)
        self.trainer = host
        self.averager: Averager | None = getattr(host, "averager", None) if settings.averaging else None
        if settings.averaging and self.averager is None:  # a run that others began
            raise ValueError(NO_AVERAGER)
        self.begun = True
        self.events: list[Event] = []
        self.listeners.append(self._on_event)

    def move(self, data: bytes, probe: int | None = None) -> None:
        """Stand at another state: a stage's beginning, or the end of that probe."""
        self.held.end_stage()
        self.held.unprotect()
        self.trainer.loads(data)
        if probe is not None:
            self.held.keep_end(probe)

    def carry_out(self, command: Probe | Commit) -> None:
        """Train until the command is answered."""
        self._perform(command)
        averager = self.averager
        while self.command is not None:
            loss = self.trainer.step()
            if averager is not None and goes_into(averager, self):
                averager.update()
            self.step(loss)

    def _on_event(self, event: Event) -> None:
        self.events.append(event)
        if isinstance(event, Committed) and self.averager is not None and self.state.steps_left == 0:
            hand_over(self.averager, self, self.trainer)  # before the end state is dumped

    def _next(self) -> None:
        """The driver decides."""

    def _after_probe(self, probe: Probe) -> None:
        if probe.stage < 0:
            super()._after_probe(probe)
