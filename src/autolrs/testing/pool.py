"""Workers in this process on a virtual clock, for tests of parallel runs and for the law of their wall-clock.

A job is carried out when it is submitted; its outcome comes when the clock has reached its end. Faults are injected by
job number, as a cluster would have them: a worker dies, or is slow, or never answers.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

from autolrs.core.settings import Settings
from autolrs.core.types import Aborted, Committed, Failed, Probed
from autolrs.run.host import PortableHost
from autolrs.run.parallel import Outcome
from autolrs.run.worker import Introduction, Job, Worker


@dataclass
class VirtualPool:
    """`size` workers that take `seconds` (of virtual time) for a step.

    Args:
        make_task: builds one worker's training.
        slow: job number -> by how many times slower it runs; infinity never answers.
        deaths: job numbers during which the worker dies, half-way.
        start_seconds: that a worker takes to start, at first and again.
        together: give commits to all workers at once, who are as many times faster.
    """

    make_task: Callable[[], PortableHost]
    size: int = 1
    seconds: float = 1.0
    slow: dict[int, float] = field(default_factory=dict)
    deaths: set[int] = field(default_factory=set)
    start_seconds: float = 0.0
    together: bool = False

    def __post_init__(self) -> None:
        self.clock = 0.0
        self.team = self.size if self.together else None
        number = self.size + self.together
        self.workers = [Worker(self.make_task()) for _ in range(number)]
        self.jobs: list[tuple[int, Job]] = []  # all that were submitted, and to whom
        self.travelled = 0  # times that a state was fetched by a worker
        self._ready = [self.start_seconds] * number  # from when on
        self._due: dict[int, tuple[float, Outcome]] = {}  # by worker

    def now(self) -> float:
        """The virtual time."""
        return self.clock

    def ready(self, worker: int) -> bool:
        """Whether it has started."""
        return self._ready[worker] <= self.clock

    def introduce(self, settings: Settings) -> Introduction:
        """What the first worker says."""
        return self.workers[0].introduce(settings)

    def share(self, data: bytes) -> bytes:
        """Nothing has to travel."""
        return data

    def fetch(self, handle: bytes) -> bytes:
        """The bytes themselves."""
        return handle

    def submit(self, worker: int, job: Job) -> None:
        """Carry the job out, and keep its outcome until it is due."""
        assert worker not in self._due, f"worker {worker} is busy"
        if worker == self.team:
            self._due = {}
        self.jobs.append((worker, job))
        events, end = self.workers[worker].run(job, self._fetch_for_worker)
        steps = sum(event.steps for event in events if isinstance(event, (Probed, Aborted, Committed, Failed)))
        took = steps * self.seconds * self.slow.get(job.number, 1.0) / (self.size if worker == self.team else 1)
        outcome = Outcome(job.number, tuple(events), end)
        if job.number in self.deaths:
            took, outcome = took / 2, Outcome(job.number, died="injected")
        self._due[worker] = self.clock + took, outcome

    def wait(self, timeout: float | None) -> list[Outcome]:
        """Let the clock run to the next outcome or start, or to the time-out."""
        times = [time for time, _ in self._due.values()] + [time for time in self._ready if time > self.clock]
        until = min([math.inf if timeout is None else self.clock + timeout, *times])
        assert until < math.inf, "nobody will ever answer"
        self.clock = until
        done = [worker for worker, (time, _) in self._due.items() if time <= self.clock]
        return [self._due.pop(worker)[1] for worker in done]

    def restart(self, worker: int) -> None:
        """A new worker in the place of that one."""
        self._due.pop(worker, None)
        self._ready[worker] = self.clock + self.start_seconds
        self.workers[worker] = Worker(self.make_task())

    def _fetch_for_worker(self, handle: bytes) -> bytes:
        self.travelled += 1
        return handle
