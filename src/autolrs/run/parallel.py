"""The driver of a parallel run: it owns the state and the journal, decides, and hands commands to workers.

Several probes are under way at once (`Settings.parallel`), and answers may come in any order. What is asked and has no
worker at it is issued: that one rule covers a new command, a worker that died, and a run that is resumed. How jobs and
states travel is a `Pool`: Ray actors (`ray_.py`), or workers in this process on a virtual clock (`testing/pool.py`).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Protocol

from autolrs.core import engine
from autolrs.core.engine import State, Strategy
from autolrs.core.interval import is_sweep
from autolrs.core.settings import Settings
from autolrs.core.types import (
    Aborted,
    Asked,
    Commit,
    Committed,
    Event,
    Failed,
    Finish,
    Finished,
    Noted,
    Probe,
    Resumed,
    Wait,
    peak_lr,
    profile_steps,
)
from autolrs.run import durable
from autolrs.run.faults import given_up
from autolrs.run.files import save_schedule
from autolrs.run.journal import Journal, JournalError
from autolrs.run.worker import NO_AVERAGER, Handle, Introduction, Job

ATTEMPTS = 3  # times that a command is issued before it is given up
SLOW = 5.0  # times the usual pace: later than that a worker counts as a straggler, unless a time-out is stated
LEAST_SECONDS = 30.0  # and never earlier than this, since a first step or a full disk can take its time
TEAM_SECONDS = 600.0  # the same for a commit on all workers together, whose processes have to start first


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a job: its events and end state, or that its worker `died`, and how."""

    number: int
    events: tuple[Event, ...] = ()
    end: Handle | None = None
    died: str | None = None


class Pool(Protocol):
    """Workers, each at one job at most, and what carries jobs and states to them and back.

    `team` is the number of one more worker: all of them together, to whom commits are given. None: any one commits.
    """

    size: int
    team: int | None

    def now(self) -> float:
        """Seconds, on the clock by which workers are slow."""

    def ready(self, worker: int) -> bool:
        """Whether a worker has started and can take a job: the time it takes to start is not the job's."""

    def introduce(self, settings: Settings) -> Introduction:
        """What the first worker says about its training."""

    def share(self, data: bytes) -> Handle:
        """Put a state where every worker can get it."""

    def fetch(self, handle: Handle) -> bytes:
        """Get a state."""

    def submit(self, worker: int, job: Job) -> None:
        """Begin a job, and do not wait for it. One for the team ends the workers' jobs, which then have no outcome."""

    def wait(self, timeout: float | None) -> list[Outcome]:
        """Outcomes as they come; none if `timeout` seconds pass, or a worker gets ready. Raises the user's errors."""

    def restart(self, worker: int) -> None:
        """End a worker that is dead or does not answer, and begin it anew; its job has no outcome any more."""


@dataclass(slots=True)
class _Issue:
    """A job that was submitted and has no outcome yet."""

    number: int
    worker: int
    command: Probe | Commit
    since: float
    late: bool = False


class Driver:
    """Drives a pool through one run: `start` or `resume`, then `run`."""

    def __init__(
        self, pool: Pool, strategy: Strategy, *, run_dir: str | Path | None = None, timeout: float | None = None
    ) -> None:
        """`timeout`: seconds after which a probe is given to a second worker; None: five times the usual pace."""
        if timeout is not None and not timeout > 0:
            raise ValueError(f"`timeout` must be above 0 seconds, got {timeout}")
        self.pool, self.strategy, self.timeout = pool, strategy, timeout
        self.run_dir = None if run_dir is None else Path(run_dir)
        self.listeners: list[Callable[[Event], None]] = []
        self._journal: Journal | None = None
        self._state: State | None = None
        self._key, self._base = 0, b""  # the state that the next command starts from, and its number
        self._start: Handle = None
        self._kept: dict[int, Handle] = {}  # end states of this stage's probes that may be needed
        self._issues: dict[int, _Issue] = {}
        self._numbers = 0
        self._tries: dict[tuple[int, int], int] = {}  # of each open command, by stage and index (-1: the commit)
        self._homes: dict[int, int] = {}  # worker -> number of the state it stands at
        self._paces: dict[bool, list[float]] = {False: [], True: []}  # seconds a step: of a worker, of the team

    @property
    def state(self) -> State:
        """The run's state so far."""
        assert self._state is not None, "call `start` or `resume` first"
        return self._state

    @property
    def training_state(self) -> bytes:
        """What the host dumped after the last commit."""
        return self._base

    # Beginning

    def start(
        self, settings: Settings, versions: dict[str, str] | None = None, *, plain: Settings | None = None
    ) -> None:
        """Begin a run. What is known of the optimizer, where it is not given, is what the training says.

        `plain`: taken instead of `settings` where these average weights and the training cannot; None: an error.
        """
        if settings.keep_best:
            raise ValueError(
                f"`keep_best` must be off in a parallel run: only `AutoLRS` keeps a state, got {settings.keep_best!r}"
            )
        first = self.pool.introduce(settings)
        if settings.averaging and not first.averages:
            if plain is None:
                raise ValueError(NO_AVERAGER)
            settings = plain
        if settings.base_lr is None and first.base_lr:
            settings = settings.with_(base_lr=first.base_lr)
        if settings.strategy == "horizon":
            settings = settings.with_(
                usual_lr=settings.usual_lr or first.usual_lr,
                proportional_steps=settings.proportional_steps or first.proportional_steps,
                rectified=settings.rectified or first.rectified,
                uncorrected=settings.uncorrected or first.uncorrected,
                normalised=settings.normalised or first.normalised,
                trained_before=settings.trained_before or first.trained_before,
            )
        event = engine.start(settings, validation=first.validation, versions=versions)
        if self.run_dir is not None:
            self._journal = Journal.create(self.run_dir)
        self._state = engine.evolve(None, event)
        self._stand(first.start)
        self._publish(event)
        for remark in settings.remarks():
            self._note(remark)
        self._note_team()

    def resume(self) -> None:
        """Go on with the run in `run_dir`: answers since the last commit count, what was under way is issued again."""
        assert self.run_dir is not None, "a run without `run_dir` cannot be resumed"
        self._journal, events = Journal.reopen(self.run_dir)
        if not events:
            raise JournalError(f"{self.run_dir} holds a journal without events: nothing to resume")
        past = engine.history(events)
        saved = durable.load_state(self.run_dir)
        at, data = saved if saved is not None else (1, self.pool.introduce(engine.fold(past[:1]).settings).start)
        if at > len(past):
            raise JournalError(f"{self.run_dir}: the saved state is of event {at}, the journal holds {len(past)}")
        # A commit that ended after the state was saved is carried out again; so is a stretch that failed.
        at = next((i for i in range(at, len(past)) if isinstance(past[i], (Committed, Failed))), len(past))
        self._state = engine.fold(past[:at])
        self._base, self._start = data, self.pool.share(data)
        if not self.state.finished:
            self._publish(Resumed(at))
            self._note_team()

    def _stand(self, data: bytes) -> None:
        """Commands start from `data` from now on."""
        self._base, self._start, self._kept = data, self.pool.share(data), {}
        if self.run_dir is not None:
            durable.save_state(self.run_dir, self.state.events, data)
            if self.state.segments:
                save_schedule(self.run_dir, self.state.schedule)

    # The loop

    def run(self) -> State:
        """Decide, issue, wait, until the run is over."""
        while self.state.finished is None:
            everybody_idle = len(self._idle()) == self.pool.size
            self._ask()
            self._issue()
            if self.state.finished is not None:
                break
            if everybody_idle and not self._issues:
                raise RuntimeError(f"strategy {self.strategy.name!r} waits for an answer, but nothing is under way")
            for outcome in self.pool.wait(self._patience()):
                self._take(outcome)
            self._look_for_stragglers()
        return self.state

    def _ask(self) -> None:
        """Decide as long as there are workers without work: a decision that waits would know more."""
        while len(self._waiting()) < len(self._idle()):
            command = engine.decide(self.state, self.strategy)
            if isinstance(command, Finish):
                self._record(Finished(command.reason))
                return
            if isinstance(command, Wait) or command == self.state.committing:
                return
            self._record(Asked(command))
            if isinstance(command, Commit) and command.note:
                self._record(Noted(command.note))
            first = next((loss for probe in self.state.probes for loss in probe.losses), 0.0)
            if message := given_up(self.state, command, first):
                self._note(message)
                warnings.warn(message, RuntimeWarning, stacklevel=2)

    def _issue(self) -> None:
        """Give every command that nobody, or only a straggler, is at to a worker that has nothing to do."""
        for command in self._waiting():
            able = self._able(command)
            if not able:
                return
            # Where the state stands already it need not travel.
            worker = min(able, key=lambda worker: (self._homes.get(worker) != self._key, worker))
            if worker == self.pool.team:  # whoever is still at something is late with what another has answered
                self._issues, self._homes = {}, {}
            self._numbers += 1
            number, kept = self._numbers, None
            if command.start_from is not None:
                kept = self._kept.get(command.start_from)
            job = Job(number, command, self.state, self.strategy, self._key, self._start, kept)
            self._homes[worker] = number if isinstance(command, Commit) else self._key
            self._tries[_name(command)] = self._tries.get(_name(command), 0) + 1
            self.pool.submit(worker, job)
            self._issues[number] = _Issue(number, worker, command, self.pool.now())

    def _take(self, outcome: Outcome) -> None:
        issue = self._issues.pop(outcome.number, None)
        if issue is None:
            return  # of a worker that was ended meanwhile
        if outcome.died is not None:
            self._lose(issue, f"{self._who(issue)} died ({outcome.died})")
            return
        command = issue.command
        if command not in self._open():
            return  # another worker was faster
        pace = (self.pool.now() - issue.since) / profile_steps(command.profile)
        self._paces[self._is_teams(command)].append(pace)
        for event in outcome.events:
            self._record(event)
        self._tries.pop(_name(command))
        if isinstance(command, Commit):
            self._key = outcome.number
            self._stand(self.pool.fetch(outcome.end))
            return
        if outcome.end is not None:
            self._kept[command.index] = outcome.end
        retained = self.strategy.retained(self.state)
        self._kept = {index: end for index, end in self._kept.items() if index in retained}

    # Workers that die, and workers that do not answer

    def _look_for_stragglers(self) -> None:
        for issue in list(self._issues.values()):
            limit, age = self._limit(issue.command), self.pool.now() - issue.since
            if limit is None or age < limit:
                continue
            if age >= 2 * limit:
                del self._issues[issue.number]
                self._lose(issue, f"{self._who(issue)} has not answered for {age:.3g} s and was ended")
            elif not issue.late:
                issue.late = True
                if issue.command in self._open() and self.pool.size > 1 and issue.worker != self.pool.team:
                    self._note(
                        f"worker {issue.worker} has been at {_words(issue.command)} for {age:.3g} s: "
                        "another gets it too, and the first answer counts"
                    )

    def _lose(self, issue: _Issue, what: str) -> None:
        """Begin a worker anew, and give up a command that was the last one's of several."""
        self._homes.pop(issue.worker, None)
        self.pool.restart(issue.worker)
        if issue.command.start_from is not None:
            self._kept.pop(issue.command.start_from, None)  # it may be what was lost: the stage's own snapshot serves
        command, tries = issue.command, self._tries.get(_name(issue.command), 0)
        if command not in self._open() or any(other.command == command for other in self._issues.values()):
            self._note(f"{what}; it was begun anew")
        elif tries < ATTEMPTS:
            self._note(f"{what}: {_words(command)} is issued again")
        elif isinstance(command, Probe) and command.stage >= 0 and command.index > 0:
            reason = f"given up after {tries} attempts: {what}"
            lr, sweep = peak_lr(command.profile), is_sweep(command.profile)
            self._record(Aborted(command.stage, command.index, lr, 0, (), reason, sweep=sweep))
            self._tries.pop(_name(command))
        else:
            raise RuntimeError(f"{_words(command)} failed {tries} times; the last time: {what}")

    def _limit(self, command: Probe | Commit) -> float | None:
        """Seconds that a worker may take before another is asked; None while there is nothing to go by."""
        if self.timeout is not None and isinstance(command, Probe):
            return self.timeout
        together = self._is_teams(command)
        paces = self._paces[together]
        if not paces:
            return None
        least = TEAM_SECONDS if together else LEAST_SECONDS
        return max(SLOW * median(paces) * profile_steps(command.profile), least)

    def _patience(self) -> float | None:
        """Seconds until the next worker is late, or later still."""
        times = []
        for issue in self._issues.values():
            limit = self._limit(issue.command)
            if limit is not None:
                times.append(issue.since + (2 if issue.late else 1) * limit - self.pool.now())
        return max(min(times), 0.0) if times else None

    # Who has what

    def _open(self) -> list[Probe | Commit]:
        """Commands that were asked and not answered."""
        commit = self.state.committing
        return [*self.state.outstanding, *([] if commit is None else [commit])]

    def _waiting(self) -> list[Probe | Commit]:
        """Those of them that no worker is at, or only late ones, and that may be issued once more."""
        busy = [issue.command for issue in self._issues.values() if not issue.late]
        return [c for c in self._open() if c not in busy and self._tries.get(_name(c), 0) < ATTEMPTS]

    def _idle(self) -> list[int]:
        busy = {issue.worker for issue in self._issues.values()}
        if self.pool.team in busy:
            return []
        return [worker for worker in range(self.pool.size) if worker not in busy and self.pool.ready(worker)]

    def _able(self, command: Probe | Commit) -> list[int]:
        """Who could begin this now."""
        team = self.pool.team
        if team is None or not self._is_teams(command):
            return self._idle()
        return [] if any(issue.worker == team for issue in self._issues.values()) else [team]

    def _is_teams(self, command: Probe | Commit) -> bool:
        return self.pool.team is not None and isinstance(command, Commit)

    def _who(self, issue: _Issue) -> str:
        return f"the team of {self.pool.size} workers" if issue.worker == self.pool.team else f"worker {issue.worker}"

    def _note_team(self) -> None:
        if self.pool.team is not None:
            self._note(f"commits run as data-parallel training on all {self.pool.size} workers")

    def _note(self, message: str) -> None:
        self._record(Noted(message))

    def _record(self, event: Event) -> None:
        self._state = engine.evolve(self.state, event)
        self._publish(event)

    def _publish(self, event: Event) -> None:
        if self._journal is not None:
            self._journal.append(event)
        for listener in self.listeners:
            listener(event)


def _name(command: Probe | Commit) -> tuple[int, int]:
    return command.stage, command.index if isinstance(command, Probe) else -1


def _words(command: Probe | Commit) -> str:
    if isinstance(command, Probe):
        return f"probe {command.index} of stage {command.stage} at LR {peak_lr(command.profile):.4g}"
    return f"the commit of stage {command.stage}"
