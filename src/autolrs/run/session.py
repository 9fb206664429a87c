"""The one place where commands become effects: snapshot, restore, set the LR, count steps, collect losses, evaluate.

Data flows one way: host -> losses -> forecast -> posterior -> command -> host. The session acts at boundaries only (the
end of a segment, a validation loss, a check); a step in between appends one loss and counts down. Invariant: setting
the LR is the last action before a step, because a restore brings the old LR back.
"""

from __future__ import annotations

import math
import warnings
from array import array
from collections.abc import Callable, MutableMapping, Sequence
from functools import partial
from itertools import count, repeat
from typing import Any, TypeVar

from autolrs.core import engine
from autolrs.core.divergence import behind, checks, diverged, levels, relapsed
from autolrs.core.engine import State, Strategy
from autolrs.core.interval import conclude, is_sweep
from autolrs.core.overfitting import overfitted
from autolrs.core.settings import Settings
from autolrs.core.thinning import thin
from autolrs.core.types import (
    Aborted,
    Asked,
    Commit,
    Committed,
    Continued,
    Event,
    Extended,
    Failed,
    Finish,
    Finished,
    Looked,
    Noted,
    Probe,
    Probed,
    Resumed,
    Wait,
    cut,
    decode,
    encode,
    locate,
    peak_lr,
    profile_steps,
)
from autolrs.run.comm import Alone, Comm, LostRankError, agree, average, first, share
from autolrs.run.faults import given_up
from autolrs.run.held import Held
from autolrs.run.host import Host, Stream, Token, TrainingHost
from autolrs.run.journal import Journal
from autolrs.run.pace import Pace
from autolrs.run.steps import RunIsOverError, StepInfo

_LONGEST = 1000  # steps between two readings of the losses, so that a long segment does not hoard device scalars

Read = Callable[[Sequence[Any]], list[float]]
_new_info = partial(tuple.__new__, StepInfo)  # StepInfo._make without its Python frame
T = TypeVar("T")


class Session:
    """Drives one host through one run. Call `begin` once, then `step(loss)` after every optimizer step until `done`."""

    def __init__(
        self,
        host: Host,
        settings: Settings,
        strategy: Strategy,
        *,
        validation: bool = False,
        stream: Stream | None = None,
        journal: Journal | None = None,
        read: Read | None = None,
        versions: dict[str, str] | None = None,
        comm: Comm | None = None,
    ) -> None:
        """`read` turns losses into floats, leaving out those of skipped steps; by default each is a number already.

        With `comm` every rank has a session and a host of its own; all go through the same boundaries.
        """
        self.host, self.strategy, self.journal = host, strategy, journal
        self.comm: Comm = comm or Alone()
        self.listeners: list[Callable[[Event], None]] = []
        self.hand_over: Callable[[], None] = self.restore_best  # how the best state is put back at the end
        self.weigh: Callable[[], None] = lambda: None  # after each probe: records what an `evaluate` costs, once
        self._read: Read = read or (lambda losses: [float(loss) for loss in losses])
        self._started = engine.start(settings, validation=validation, versions=versions)
        self.state: State = engine.evolve(None, self._started)
        self.begun = False
        self.held = Held(host, stream)
        self._pace = Pace()
        self._command: Probe | Commit | None = None
        self._done = 0  # steps of the command's profile that are behind us
        self._skipped = 0  # of those, steps that a kept probe had taken
        self._losses = array("d")
        self._values: list[float] = []  # validation losses of the probe
        self._pending: list[Any] = []  # losses since the last boundary, not yet read
        self._take = 0  # how many of them make a boundary
        self._lr = 0.0  # of the next step, where it does not move
        self._ramp: list[float] = []  # LRs of the steps up to the next boundary, if they differ
        self._infos: list[StepInfo] = []  # what to say of each step up to the next boundary
        self._slot: MutableMapping[str, Any] | None = None  # where the host keeps its LR, if that is all there is to it

    # What people ask

    @property
    def done(self) -> bool:
        """Whether the run is over."""
        return self.state.finished is not None

    @property
    def exploring(self) -> bool:
        """Whether the next step belongs to a probe and will be undone."""
        return isinstance(self._command, Probe)

    @property
    def lr(self) -> float:
        """LR of the next step."""
        return self._ramp[min(len(self._pending), len(self._ramp) - 1)] if self._ramp else self._lr

    @property
    def command(self) -> Probe | Commit | None:
        """What is being carried out; None before the beginning and after the end."""
        return self._command

    @property
    def base(self) -> Token | None:
        """The snapshot before the probes or the guarded stretch under way, where there is one."""
        return self.held.guard if self.held.base is None else self.held.base

    @property
    def tokens(self) -> list[Token]:
        """All snapshots that may still be restored: what a checkpoint has to hold beside the live state."""
        return self.held.tokens

    @property
    def stream(self) -> Stream | None:
        """Where the batches come from, if probes are to see the same ones; it may be set between commands."""
        return self.held.stream

    @stream.setter
    def stream(self, stream: Stream | None) -> None:
        self.held.stream = stream

    @property
    def command_steps(self) -> int:
        """Steps of the current command's profile that are behind us."""
        return self._done + len(self._pending)

    @property
    def committed_steps(self) -> int:
        """Steps that update the model for good."""
        return self.state.committed_steps + (self.command_steps if isinstance(self._command, Commit) else 0)

    @property
    def raw_steps(self) -> int:
        """All steps: committed, probed, aborted and undone."""
        return self.state.raw_steps + self.command_steps - self._skipped

    # The loop

    def begin(self) -> None:
        """Decide the first command and set its LR."""
        if self.begun:
            return
        self.begun = True
        self._publish(self._started)
        for remark in self.state.settings.remarks():
            self.note(remark)
        self._next()

    def go_on(self) -> None:
        """Begin with a run whose first event is in the journal already."""
        self.begun = True
        self._next()

    def step(self, loss: Any) -> StepInfo:
        """Count one optimizer step that had this training loss. The hot path: everything else happens at boundaries."""
        pending = self._pending
        pending.append(loss)
        n = len(pending)
        if n < self._take:
            ramp = self._ramp
            if ramp:
                slot = self._slot
                if slot is None:
                    self.host.set_lr(ramp[n])
                else:
                    slot["lr"] = ramp[n]
            return self._infos[n - 1]
        lr, undone = (self._ramp[-1] if self._ramp else self._lr), self.exploring
        self._boundary()
        return StepInfo(lr, undone, self.committed_steps, self.raw_steps, self.done)

    def note(self, message: str) -> None:
        """Put a remark into the journal, which rank 0 keeps."""
        if self.comm.rank == 0:
            self.record(Noted(message))

    def extend(self, total_steps: int) -> None:
        """Change the budget: the stretch under way ends here, and the rest is decided anew. Not between probes."""
        if self.exploring and (self.state.probes or self.command_steps):
            raise RuntimeError("the budget cannot change while LRs are being probed: wait until `exploring` is False")
        if total_steps <= self.committed_steps:
            raise ValueError(f"`total_steps` must be above the {self.committed_steps} committed, got {total_steps}")
        agree(self.comm, {"total_steps": total_steps, "raw_steps": self.raw_steps}, "`extend`")
        command, pending = self._command, self._losses_of_all()
        if isinstance(command, Commit) and self._done + len(pending):
            self._losses.extend(pending)
            done, skipped = self._done + len(pending), self._skipped
            self._close()
            self._pending = []
            profile = cut(command.profile, 0, done)
            self.record(Committed(command.stage, profile, done - skipped, thin(self._losses), self._levels(command)))
        self.record(Extended(total_steps))
        self._next()

    def refresh(self) -> None:
        """Take the stage's snapshot again: the host's state was changed from outside before the first step."""
        if self.command_steps:
            return
        if self.held.base is not None:
            self.held.begin()
            self.host.set_lr(self.lr)
        elif self.held.guard is not None:
            self.held.protect()

    def rollback(self) -> None:
        """Undo the steps of the probe under way and begin it again; a commit is left alone."""
        if isinstance(self._command, Probe):
            self._perform(self._command)

    def restore_best(self) -> None:
        """Put the state with the lowest validation loss back; a run that goes on from it does so at its present LR."""
        if not self.state.settings.keep_best:
            raise RuntimeError("no state was kept: `keep_best` is off")
        if self.exploring:
            raise RuntimeError("the best state cannot be restored in a probe: wait until `exploring` is False")
        if self.held.best is None:
            when = f"every {self.state.looking} committed steps" if self.state.looking else "never"
            raise RuntimeError(f"no state was kept: no finite validation loss was seen so far (looked at {when})")
        self.host.restore(self.held.best)
        if self._command is not None:
            assert self.state.best is not None
            self._set_lr(self.lr)
            self.note(f"step {self.committed_steps}: going on from the best state, of step {self.state.best.step}")

    # Lowering commands to effects

    def _next(self) -> None:
        """Decide and begin the next command. One asked before a kill and never answered is repeated, not remade."""
        asked_before = self.state.outstanding[0] if self.state.outstanding else self.state.committing
        command = asked_before or self._on_first(lambda: engine.decide(self.state, self.strategy))
        if isinstance(command, Finish):
            self._finish(command.reason)
            return
        assert not isinstance(command, Wait), "a single host has no outstanding probe to wait for"
        if asked_before is None:
            self.record(Asked(command))
        if isinstance(command, Commit) and command.note:
            self.note(command.note)
        self._perform(command)

    def _perform(self, command: Probe | Commit) -> None:
        """Put the host where the command begins, then set its LR."""
        self._command, self._done, self._skipped = command, 0, 0
        self._losses, self._values, self._pending = array("d"), [], []
        if isinstance(command, Commit):
            self._place_commit(command)
        elif self.held.base is None:
            self.held.begin()
        else:
            self.held.back(command.start_from)
        self._aim()

    def _place_commit(self, command: Commit) -> None:
        if command.start_from in self.held:
            self.held.back(command.start_from)
            answer = next(probe for probe in self.state.probes if probe.index == command.start_from)
            self._done = self._skipped = answer.steps
        elif self.held.base is not None:
            self.held.back()
        if self.stream is not None:
            self.stream.forget()
        self.held.end_stage()
        if command.guarded:
            self.held.protect()

    def _aim(self) -> None:
        """Find the next boundary and set the LR of the step after this moment; last action before a step."""
        assert self._command is not None
        segment, offset = locate(self._command.profile, self._done)
        left = min(segment.steps - offset, _LONGEST)
        marks = [(self._done, self._command.check_every)]
        if isinstance(self._command, Probe):
            marks.append((self._done, self._command.eval_every))
        else:
            marks.append((self.state.committed_steps + self._done, self.state.looking))
        left = min([left, *(every - step % every for step, every in marks if every)])
        self._take = left
        moving = segment.lr_start != segment.lr_end
        self._ramp = [segment.lr_at(offset + i) for i in range(left)] if moving else []
        self._lr = segment.lr_at(offset)
        self._infos = self._foretell(left)
        self._pace.begin()
        self._set_lr(self._lr)

    def _set_lr(self, lr: float) -> None:
        self.host.set_lr(lr)
        slot = getattr(self.host, "lr_slot", None)  # optional: see `run/host.py`
        self._slot = None if slot is None else slot()

    def _foretell(self, steps: int) -> list[StepInfo]:
        """What each step up to the next boundary will be: told in one go, it costs a step next to nothing."""
        gain = int(isinstance(self._command, Commit))
        lrs = self._ramp or repeat(self._lr, steps)
        committed = count(self.state.committed_steps + gain * (self._done + 1), gain)
        raw = count(self.state.raw_steps + self._done - self._skipped + 1)
        told = zip(lrs, repeat(not gain), committed, raw, repeat(False), repeat(True))
        return [*map(_new_info, told)]

    # Boundaries

    def _boundary(self) -> None:
        """Read the losses, evaluate or check where that is due, and go on to the next stretch or command."""
        command = self._command
        if command is None:
            self._pending = []
            raise RunIsOverError(f"a step was counted {'after the run was done' if self.begun else 'before `begin`'}")
        losses = self._losses_of_all()
        self._pace.took(len(self._pending))
        self._pending = []
        self._done += len(losses)  # a step that mixed precision skipped has no loss here and is taken again
        self._losses.extend(losses)
        if isinstance(command, Probe) and losses:
            if command.metric == "validation" and self._done % command.eval_every == 0:
                self._values.append(self._evaluate(command))
            if command.check_every and (why := self._hopeless(command, len(losses))):
                self._abort(command, why)
                return
        elif isinstance(command, Commit):
            if command.guarded and self._broken(command, losses):
                return
            step, every = self.state.committed_steps + self._done, self.state.looking
            # At the end of the run `_finish` looks: the weights may change once more before that.
            if losses and every and step % every == 0 and step != self.state.settings.total_steps:
                try:
                    self._look(step)
                except KeyboardInterrupt:  # leaves that look out; whoever goes on here, in a notebook, finds all whole
                    self._advance(command)
                    raise
        self._advance(command)

    def _advance(self, command: Probe | Commit) -> None:
        """Go on with the command, or end it where all of its steps are taken."""
        if self._done < profile_steps(command.profile):
            self._aim()
        elif isinstance(command, Probe):
            self._answer(command)
        else:
            steps = self._done - self._skipped
            self._close()
            self.record(Committed(command.stage, command.profile, steps, thin(self._losses), self._levels(command)))
            self._next()

    def _losses_of_all(self) -> list[float]:
        """The losses since the last boundary, averaged over ranks."""
        losses, remark = share(self.comm, self._read(self._pending), len(self._pending), self.raw_steps)
        if remark:
            self.note(remark)
        return losses

    def _on_first(self, make: Callable[[], T]) -> T:
        """Rank 0 decides, the others take its decision."""
        if self.comm.size == 1:
            return make()
        decided: T = decode(first(self.comm, lambda: encode(make()), "a decision"))
        return decided

    def _close(self) -> int:
        """The command is carried out; returns its steps. Its event comes after: a listener may save the run then."""
        steps = self._done
        self.held.unprotect()
        self._command, self._done, self._skipped = None, 0, 0
        return steps

    def _broken(self, commit: Commit, recent: Sequence[float]) -> bool:
        """Undo a guarded stretch, if training broke in it."""
        level = None
        if all(map(math.isfinite, recent)):
            due = commit.check_every and self._done % commit.check_every == 0
            seen = (*self.state.levels, *self._levels(commit)) if due else ()
            if not relapsed(seen):
                return False
            level = seen[-1]
        self.held.undo()
        first = self._losses[0]
        self.record(Failed(commit.stage, peak_lr(commit.profile), self._close(), level))
        self._next()
        if message := given_up(self.state, self._command, first):
            self.note(message)
            warnings.warn(message, RuntimeWarning, stacklevel=2)
        return True

    def _levels(self, commit: Commit) -> tuple[float, ...]:
        """The usual training loss from each check of this stretch to the next."""
        return levels(self._losses, commit.check_every) if commit.check_every else ()

    def _validation_loss(self) -> float:
        measure = partial(average, self.comm, self.host.evaluate, "`evaluate`")
        loss, remark = self._pace.time(measure, self.state.settings)
        if remark:
            self.note(remark)
        return loss

    def _evaluate(self, probe: Probe) -> float:
        try:
            return self._validation_loss()
        except LostRankError:
            raise
        except Exception as error:
            where = f"probe {probe.index} of stage {probe.stage}, after {self.state.committed_steps} committed steps"
            self.rollback()
            raise RuntimeError(
                f"`evaluate` failed in {where}; the probe was undone and will be run again: {error!r}"
            ) from error

    def _look(self, step: int) -> None:
        """Take the validation loss, and the state if none was lower. A failure only warns: no decision rests on it."""
        try:
            looked = Looked(step, self._validation_loss())
        except LostRankError:
            raise
        except Exception as error:
            message = f"`evaluate` failed after {step} committed steps; `keep_best` leaves that look out: {error!r}"
            self.note(message)
            warnings.warn(message, RuntimeWarning, stacklevel=2)
            return
        if engine.evolve(self.state, looked).best is looked:
            self.held.keep_best()
        self.record(looked)

    def _answer(self, probe: Probe) -> None:
        series = self._values if probe.metric == "validation" else list(self._losses)
        forecast = self._on_first(lambda: self.strategy.judge(self.state, probe, series))
        lr, evaluations, steps = peak_lr(probe.profile), len(self._values), self._close()
        seen = checks(self._losses, probe.check_every) if probe.check_every > 1 else ()  # 1: the losses again
        sweep = is_sweep(probe.profile)
        self.record(Probed(probe.stage, probe.index, lr, steps, thin(series), forecast, evaluations, seen, sweep))
        self._after_probe(probe)

    def _hopeless(self, probe: Probe, recent: int) -> str:
        """Why the probe is not worth its end; empty if it may be."""
        if diverged(self._losses, recent):
            return f"loss {self._losses[-1]:.4g} after {self._done} steps, from {self._losses[0]:.4g}"
        if behind(self._losses, probe.check_every, probe.limits):
            limit = probe.limits[self._done // probe.check_every - 1]
            return f"clearly losing after {self._done} steps: mean loss above {limit:.4g}, too far behind the best run"
        return ""

    def _abort(self, probe: Probe, reason: str) -> None:
        lr, evaluations, steps = peak_lr(probe.profile), len(self._values), self._close()
        sweep = is_sweep(probe.profile)
        self.record(Aborted(probe.stage, probe.index, lr, steps, thin(self._losses), reason, evaluations, sweep))
        self._after_probe(probe)

    def _after_probe(self, probe: Probe) -> None:
        if probe.stage < 0:
            lrs = [locate(probe.profile, i)[0].lr_start for i in range(len(self._losses))]
            base_lr = self.state.settings.base_lr
            self.record(self._on_first(lambda: conclude(lrs, list(self._losses), base_lr)))
        else:
            retained = self.strategy.retained(self.state)
            self.held.keep_only(retained)
            if probe.index in retained:
                self.held.keep_end(probe.index)
        try:
            self.weigh()
        finally:  # whoever goes on after an interrupt, in a notebook, finds all whole
            self._next()

    def _finish(self, reason: str) -> None:
        try:
            if self.state.looking:
                self._look(self.state.committed_steps)
                self._conclude_looks()
        except KeyboardInterrupt:
            self._end(reason)
            raise
        self._end(reason)

    def _conclude_looks(self) -> None:
        """Where nobody asked to do that himself, a run that has clearly overfitted ends with its best state."""
        looks, best = self.state.looks, self.state.best
        if self.state.settings.keep_best != "auto" or self.held.best is None or best is None:
            return
        if self._on_first(lambda: overfitted(looks)):
            self.note(
                f"validation loss {looks[-1]:.6g} at the end and {best.loss:.6g} after {best.step} steps, more than "
                f"it moves by chance: the run ends with the state of step {best.step}"
            )
            self.hand_over()

    def _end(self, reason: str) -> None:
        self.held.end_stage()
        self._pending = []
        self._close()
        self._lr, self._ramp = (self.state.segments[-1].lr_end if self.state.segments else self._lr), []
        self._take = 0
        self.record(Finished(reason))

    def record(self, event: Event) -> None:
        """Fold an event into the state, write it down and tell the listeners."""
        self.state = engine.evolve(self.state, event)
        self._publish(event)

    def _publish(self, event: Event) -> None:
        if self.journal is not None:
            self.journal.append(event)
        for listener in self.listeners:
            listener(event)

    # Going on in another process

    def state_dict(self) -> dict[str, Any]:
        """Plain values for everything but the host's own state; snapshots appear by token."""
        losses = self._read(self._pending)
        self._pending = losses  # read once; as floats they are read again for nothing
        return {
            "state": self.state.to_json(),
            "command": encode(self._command),
            "done": self._done,
            "skipped": self._skipped,
            "losses": encode([*self._losses, *losses]),
            "unread": len(losses),
            "values": encode(self._values),
            **self.held.to_json(),
        }

    def load_state_dict(self, values: dict[str, Any], *, own_journal: bool = False) -> None:
        """Go on from `state_dict`'s point, where host and stream must stand already; the journal says so.

        With `own_journal` the journal is the very one that led to this point, and is only cut back to it.
        """
        event: Event = Continued(values["state"])
        self.state = engine.evolve(None, event)
        if own_journal:
            self.state = State.from_json(values["state"])
            event = Resumed(self.state.events)
        self.begun = True
        self._command = decode(values["command"])
        self._done, self._skipped = values["done"], values["skipped"]
        losses = list(decode(values["losses"]))
        read = len(losses) - values["unread"]
        self._losses, self._pending = array("d", losses[:read]), losses[read:]
        self._values = list(decode(values["values"]))
        self.held.load(values)
        if self.journal is not None:
            self.journal.append(event)
        if self._command is None:
            self._lr = self.state.segments[-1].lr_end if self.state.segments else 0.0
            if not self.done:
                self._next()
            return
        if isinstance(self._command, Commit) and self._done == profile_steps(self._command.profile):
            self._advance(self._command)  # saved by a listener of its last look
            return
        self._aim()
        self.host.set_lr(self.lr)


def drive(session: Session, host: TrainingHost, steps: int | None = None) -> State:
    """Run a host that owns its step, to the end or for `steps` raw steps."""
    session.begin()
    while not session.done and (steps is None or steps > 0):
        session.step(host.step())
        steps = None if steps is None else steps - 1
    return session.state
