"""Parallel probes on Ray: each worker is an actor that builds the training, and states travel by the object store.

What is decided and when is `run/parallel.py`'s; what a worker does with a command is `run/worker.py`'s; commits on all
workers together are `ray_train_.py`'s. Here are only the actors.
"""

from __future__ import annotations

import logging
import os
import platform
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy
import scipy

import autolrs
from autolrs.core import averaging, engine, strategies
from autolrs.core.engine import State, Strategy
from autolrs.core.schedule import Schedule
from autolrs.core.settings import Settings
from autolrs.core.types import Event
from autolrs.run import journal
from autolrs.run.host import PortableHost
from autolrs.run.parallel import Driver, Outcome
from autolrs.run.worker import Introduction, Job, Worker

try:
    import ray
except ModuleNotFoundError as error:
    if error.name != "ray":
        raise
    raise ImportError("autolrs.ray_ needs Ray: pip install 'autolrs[ray]'") from error

from autolrs import ray_train_

START_SECONDS = 60.0  # that a run waits for all of its workers before it begins; who is later joins later
START_ATTEMPTS = 3

MakeTask = Callable[[], Any]
How = Literal["one", "ddp"]


@dataclass(frozen=True)
class Result:
    """What a run came to."""

    schedule: Schedule
    state: State = field(repr=False)
    training_state: bytes = field(repr=False)  # what the host dumped at the end: averaged weights, where there are any
    make_task: MakeTask = field(repr=False)

    def task(self) -> PortableHost:
        """The training, built in this process and standing at the run's end; a PyTorch one has `.model`."""
        task = as_task(self.make_task())
        task.loads(self.training_state)
        return task


def fit(
    make_task: MakeTask,
    settings: Settings | Mapping[str, Any],
    *,
    num_workers: int = 2,
    run_dir: str | Path | None = None,
    commit: How = "one",
    strategy: Strategy | None = None,
    timeout: float | None = None,
    worker_options: Mapping[str, Any] | None = None,
    on_event: Callable[[Event], None] | None = None,
) -> Result:
    """Find the schedule and train with it, `num_workers` probes at a time.

    Args:
        make_task: called once in every worker; gives `(model, optimizer, loader, loss_fn)` or `(..., evaluate)` for
            PyTorch, or a `run.host.PortableHost` (a `pytorch.task.TorchTask` or your own).
        settings: `Settings`, taken as they are, or a dictionary of them, for which the strategy's defaults hold as for
            `AutoLRS`: a PyTorch training with "horizon" averages its weights from 250 steps on unless it says
            `averaging=False`. `keep_best` is refused.
        num_workers: actors, and probes under way at once; becomes `settings.parallel`.
        run_dir: folder for journal, schedule and the state after every commit; a killed run goes on with `resume`.
        commit: "one": a commit runs on one worker; "ddp": as data-parallel training on all of them, each on its part of
            every batch (PyTorch only; the loss must be a mean over examples).
        strategy: an object of `core.strategies` instead of the one that the settings name.
        timeout: seconds after which a probe is given to a second worker too, twice that and the first one is ended and
            begun anew; None: five times the pace of the run so far, at least 30 s.
        worker_options: resources of an actor, as `ray.remote` takes them; one CPU each unless given.
        on_event: called with every event as it is recorded.
    """
    if run_dir is not None and (Path(run_dir) / journal.NAME).exists():
        raise FileExistsError(
            f"{run_dir} already holds a run: continue it with `autolrs.ray_.resume`, or choose another `run_dir`"
        )
    pool = _Pool(make_task, num_workers, worker_options, commit)
    config, plain = _settings(settings, num_workers, strategy)
    chosen = strategies.get(config.strategy) if strategy is None else strategy
    with pool:
        driver = Driver(pool, chosen, run_dir=run_dir, timeout=timeout)
        driver.listeners += [] if on_event is None else [on_event]
        driver.start(config, _versions(), plain=plain)
        return _finish(driver, make_task)


def resume(
    run_dir: str | Path,
    make_task: MakeTask,
    *,
    num_workers: int | None = None,
    commit: How = "one",
    strategy: Strategy | None = None,
    timeout: float | None = None,
    worker_options: Mapping[str, Any] | None = None,
    on_event: Callable[[Event], None] | None = None,
) -> Result:
    """Go on with the run in `run_dir`, whose driver was killed, with its recorded settings.

    Answers since the last commit count; what was under way is issued again. `num_workers` may differ from before:
    more than `settings.parallel` do not help, fewer take longer. So may `commit`, which is not recorded: give it again.
    """
    config = engine.fold(journal.read(run_dir)).settings
    chosen = strategies.get(config.strategy) if strategy is None else strategy
    with _Pool(make_task, num_workers or config.parallel, worker_options, commit) as pool:
        driver = Driver(pool, chosen, run_dir=run_dir, timeout=timeout)
        driver.listeners += [] if on_event is None else [on_event]
        driver.resume()
        return _finish(driver, make_task)


def as_task(made: Any) -> PortableHost:
    """What `make_task` gave as a host."""
    if isinstance(made, tuple):
        if len(made) not in (4, 5):
            raise TypeError(
                "`make_task` must give (model, optimizer, loader, loss_fn) or (..., evaluate), "
                f"got a tuple of {len(made)}"
            )
        from autolrs.pytorch.task import TorchTask

        return TorchTask(*made)
    missing = [name for name in ("snapshot", "restore", "set_lr", "step", "dumps", "loads") if not hasattr(made, name)]
    if missing:
        raise TypeError(
            "`make_task` must give (model, optimizer, loader, loss_fn), (..., evaluate), or a PortableHost, "
            f"got {type(made).__name__} without {', '.join(missing)}"
        )
    task: PortableHost = made
    return task


def _finish(driver: Driver, make_task: MakeTask) -> Result:
    state = driver.run()
    return Result(state.schedule, state, driver.training_state, make_task)


class _Actor:
    """A worker in a process of its own."""

    def __init__(self, make_task: MakeTask) -> None:
        self._worker = Worker(as_task(make_task()))

    def stand(self) -> None:
        """Answers once the worker is there."""

    def check_split(self, ranks: int) -> None:
        """Raise if the training cannot run on several workers together, as far as can be told beforehand."""
        host: Any = self._worker.host
        if not hasattr(host, "spread"):
            raise TypeError(
                "`commit`='ddp' needs a PyTorch training: `make_task` must give (model, optimizer, loader, loss_fn), "
                f"(..., evaluate), or a TorchTask, got {type(host).__name__}"
            )
        host.check_split(ranks)

    def introduce(self, settings: Settings) -> Introduction:
        return self._worker.introduce(settings)

    def run(self, job: Job) -> tuple[tuple[list[Event], bool], bytes | None]:
        """Two objects: events with whether there is an end state, and that, which may stay where it is."""
        events, end = self._worker.run(job, ray.get)
        return (events, end is not None), end


class _Pool:
    """Actors behind the protocol `run.parallel.Pool`; starts Ray if nobody did, and then ends it too."""

    def __init__(self, make_task: MakeTask, size: int, options: Mapping[str, Any] | None, commit: How) -> None:
        if not isinstance(size, int) or size < 1:
            raise ValueError(f"`num_workers` must be a whole number of at least 1, got {size!r}")
        if commit not in ("one", "ddp"):
            raise ValueError(f"`commit` must be 'one' or 'ddp', got {commit!r}")
        if commit == "ddp":
            ray_train_.check(size, options or {})
        self.size = size
        self.team = size if commit == "ddp" else None
        self._options = {"num_cpus": 1, **(options or {})}
        self._make_task = make_task
        self._own = False
        self._actors: dict[int, Any] = {}
        self._starting: dict[int, Any] = {}  # workers that are not known to be there, by what tells it
        self._failures = 0  # to start
        self._refs: dict[Any, tuple[int, int, Any]] = {}  # of events: worker, job number, end state

    def __enter__(self) -> _Pool:
        if not ray.is_initialized():
            _begin_ray(self.size * self._options["num_cpus"])
            self._own = True
        needed, there = self.size * self._options["num_cpus"], ray.cluster_resources().get("CPU", 0)
        if there < needed:
            self.__exit__()
            raise ValueError(
                f"`num_workers`={self.size} needs {needed:g} CPUs and Ray has {there:g}: "
                "lower it, or give worker_options={'num_cpus': ...}"
            )
        self._shared_make_task = ray.put(self._make_task)
        return self

    def __exit__(self, *_: object) -> None:
        self._end(list(self._actors))
        if self._own:
            ray.shutdown()

    def _wake(self) -> None:
        """Begin all workers and let them build their training; an error in that is raised here."""
        for worker in range(self.size):
            self._begin(worker)
        ray.wait(list(self._starting.values()), num_returns=len(self._starting), timeout=START_SECONDS)
        for worker in range(self.size):
            self.ready(worker)
        if self.team is not None:
            ray.get(self._actors[0].check_split.remote(self.size))

    def _end(self, workers: Iterable[int]) -> None:
        for worker in workers:
            ray.kill(self._actors.pop(worker))
            self._starting.pop(worker, None)
        self._refs = {ref: job for ref, job in self._refs.items() if job[0] in self._actors}

    def _begin(self, worker: int) -> None:
        actor: Any = ray.remote(_Actor).options(**self._options).remote(self._shared_make_task)
        self._actors[worker], self._starting[worker] = actor, actor.stand.remote()

    # Pool

    def now(self) -> float:
        return time.monotonic()

    def ready(self, worker: int) -> bool:
        start = self._starting.get(worker)
        if start is None:
            return True
        if not ray.wait([start], timeout=0)[0]:
            return False
        try:
            ray.get(start)
        except ray.exceptions.RayActorError as error:
            self._failures += 1
            hopeless = "creation task" in str(error)  # `make_task` raised, and would again
            if hopeless or self._failures >= START_ATTEMPTS:
                raise
            self._begin(worker)
            return False
        del self._starting[worker]
        return True

    def introduce(self, settings: Settings) -> Introduction:
        self._wake()
        found: Introduction = ray.get(self._actors[0].introduce.remote(settings))
        return found

    def share(self, data: bytes) -> Any:
        return ray.put(data)

    def fetch(self, handle: Any) -> bytes:
        data: bytes = ray.get(handle)
        return data

    def submit(self, worker: int, job: Job) -> None:
        if worker == self.team:
            # The ranks need what the workers hold: CPUs, GPUs, memory. Workers are begun anew when there are probes.
            self._end([other for other in self._actors if other != worker])
            if worker not in self._actors:
                team: Any = ray.remote(ray_train_.Team).options(num_cpus=0)
                self._actors[worker] = team.remote([self._shared_make_task], self.size, self._options)
        elif worker not in self._actors:
            self._wake()
        events, end = self._actors[worker].run.options(num_returns=2).remote(job)
        self._refs[events] = worker, job.number, end

    def wait(self, timeout: float | None) -> list[Outcome]:
        refs = [*self._refs, *self._starting.values()]
        done = ray.wait(refs, num_returns=1, timeout=timeout)[0] if refs else []
        return [self._outcome(ref, *self._refs.pop(ref)) for ref in done if ref in self._refs]

    def restart(self, worker: int) -> None:
        self._end([worker])
        if worker != self.team:
            self._begin(worker)

    def _outcome(self, ref: Any, worker: int, number: int, end: Any) -> Outcome:
        try:
            events, has_end = ray.get(ref)
            return Outcome(number, tuple(events), end if has_end else None)
        except ray.exceptions.RayError as error:
            with suppress(ray.exceptions.RayError):
                ray.get(end)  # which failed as well, and Ray would say so a second time
            cause = error.cause if isinstance(error, ray.exceptions.RayTaskError) else error
            lost = (ray.exceptions.RayActorError, ray.exceptions.ObjectLostError, ray_train_.LostTeamError)
            if isinstance(cause, lost):
                return Outcome(number, died=str(cause).strip().split("\n")[0])
            raise


def _begin_ray(cpus: float) -> None:
    """A local Ray that says nothing, or the cluster that RAY_ADDRESS names."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    if os.environ.get("RAY_ADDRESS"):
        ray.init(**quiet)
    else:
        ray.init(num_cpus=max(int(cpus + 0.999), os.cpu_count() or 1), include_dashboard=False, **quiet)


def _settings(
    settings: Settings | Mapping[str, Any], num_workers: int, strategy: Strategy | None
) -> tuple[Settings, Settings | None]:
    """The run's settings, and where they average weights by default those of a training that cannot."""
    given = {"parallel": num_workers, **({} if strategy is None else {"strategy": strategy.name})}
    if isinstance(settings, Settings):
        return settings.with_(**given), None
    values: dict[str, Any] = {"strategy": "horizon", **settings, **given}
    plain = Settings.make(**values)
    if "averaging" in values or plain.strategy != "horizon" or not averaging.by_default(plain.total_steps):
        return plain, None
    return Settings.make(**values, averaging=True), plain


def _versions() -> dict[str, str]:
    return {
        "autolrs": autolrs.__version__,
        "python": platform.python_version(),
        "ray": ray.__version__,
        "numpy": numpy.__version__,
        "scipy": scipy.__version__,
    }
