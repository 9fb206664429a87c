"""`AutoLRS`: the three lines in a PyTorch loop. A thin shell over `run/session.py`; nothing is decided here."""

from __future__ import annotations

import os
import platform
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import numpy
import scipy
import torch
from torch import Tensor, nn

import autolrs
from autolrs.core import averaging, strategies
from autolrs.core.engine import State, Strategy
from autolrs.core.settings import AVERAGING_DEFAULTS, Settings
from autolrs.core.strategies.horizon_plan import weighing_share
from autolrs.core.types import Asked, Commit, Committed, Event, Extended, Finished, Weighed
from autolrs.progress.views import watched
from autolrs.pytorch import checkpoint, comm, preempt
from autolrs.pytorch.amp import SkippedSteps
from autolrs.pytorch.averaging import NAME as AVERAGER
from autolrs.pytorch.averaging import Averager
from autolrs.pytorch.batch import clone_batch, size_of_batch
from autolrs.pytorch.per_rank import gathered, own
from autolrs.pytorch.rng import LoaderRng
from autolrs.pytorch.state import TorchHost, read_losses, scalar
from autolrs.pytorch.usual import normalised, proportional_steps, rectified, trained_before, uncorrected, usual_lr
from autolrs.pytorch.weigh import Weigher
from autolrs.run.averages import goes_into, hand_over
from autolrs.run.comm import LostRankError, agree, average, first
from autolrs.run.facade import Facade
from autolrs.run.journal import Journal
from autolrs.run.replay import Batches
from autolrs.run.session import Session
from autolrs.run.steps import RunIsOverError, StepInfo
from autolrs.run.trackers import Trackers

_QUIET_BATCHES = 1000  # batches without a step after which `batches` says that `step` was forgotten


class AutoLRS(Facade):
    """Finds the learning-rate schedule of `optimizer` while `model` trains.

    Args:
        model: its parameters and buffers are saved and restored around probes.
        optimizer: any `torch.optim.Optimizer` without a scheduler; its groups keep their LR ratios to the first.
        total_steps: committed optimizer steps; None goes on until the loop is left (strategy "paper" only).
        lr: the search interval (min, max), or "auto" to find it by a range test.
        strategy: "horizon" (one search on miniature runs), "paper" (Algorithm 1), or an object of `core.strategies`.
        evaluate: `() -> float`, the validation loss on a small fixed subset, called in eval mode: it judges miniature
            runs and finds overfitting, and with `strategy="paper"` it judges late stages.
        run_dir: folder for the journal, the schedule and a checkpoint after commits; None keeps everything in memory.
        seed: of the search where it draws (random search).
        checkpoint_every: commits between two checkpoints in `run_dir`; 0 writes none.
        trackers: where to log: "tensorboard", "mlflow", "wandb", a SummaryWriter, a W&B run, a function (values, step).
        progress: show what is tried and chosen, as a live picture in a terminal and as plain lines anywhere else.
        preset: "strict" (as printed) or "practical".
        settings: any field of `autolrs.Settings` by name.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        *,
        total_steps: int | None = None,
        lr: tuple[float, float] | str = "auto",
        strategy: str | Strategy = "horizon",
        evaluate: Callable[[], Any] | None = None,
        run_dir: str | Path | None = None,
        seed: int = 0,
        checkpoint_every: int = 1,
        trackers: Sequence[Any] = (),
        progress: bool = False,
        **settings: Any,
    ) -> None:
        _check(model, optimizer, evaluate)
        self._accelerated = type(optimizer).__name__ == "AcceleratedOptimizer"
        if self._accelerated:  # a shell without hooks of its own
            optimizer = getattr(optimizer, "optimizer")  # noqa: B009 - torch's own class has no such attribute
        if checkpoint_every < 0:
            raise ValueError(f"`checkpoint_every` must not be negative, got {checkpoint_every}")
        chosen, name = _strategy(strategy)
        resumed_from = settings.pop("_resumed_from", None)
        self._given = frozenset(settings)
        if resumed_from is None:
            settings.setdefault("base_lr", float(optimizer.param_groups[0]["lr"]) or None)
            if name == "horizon":
                settings = {**_defaults(optimizer, total_steps), **settings}
            config = Settings.make(total_steps=total_steps, lr=lr, strategy=name, seed=seed, **settings)
        else:
            config = resumed_from
        config.check_evaluate(evaluate is not None)
        self.model, self.optimizer, self.comm = model, optimizer, comm.current()
        given = {
            "evaluate": evaluate is not None,
            "run_dir": run_dir and str(run_dir),
            "checkpoint_every": checkpoint_every,
        }
        agree(self.comm, {**config.to_dict(), **given}, "the start")
        if name == "horizon" and resumed_from is None:  # rank 0 decides: others may hold other parts of the model
            if "usual_lr" not in settings:
                config = config.with_(usual_lr=first(self.comm, lambda: usual_lr(model, optimizer), "the usual LR"))
            if "normalised" not in settings:
                config = config.with_(normalised=first(self.comm, lambda: normalised(model), "whether there are norms"))
            if "trained_before" not in settings:
                config = config.with_(trained_before=first(self.comm, lambda: trained_before(model), "an old model"))
        self.host = TorchHost(model, optimizer, evaluate)
        self._averager: Averager | None = None
        self._set_averaging(config.averaging)
        self.run_dir = None if run_dir is None else Path(run_dir)
        self._checkpoint_every, self._commits, self._point = checkpoint_every, 0, ""
        journal = self._new_journal() if resumed_from is None else None
        self.session = Session(
            self.host,
            config,
            chosen,
            validation=evaluate is not None,
            journal=journal,
            read=self._read,
            versions=_versions(),
            comm=self.comm,
        )
        self.session.listeners.append(self._on_event)
        self.session.hand_over = self.restore_best
        self.session.weigh = self._weigh
        self._weigher: Weigher | None = None
        self._watch_cost()
        if trackers and self.comm.rank == 0:
            log = Trackers(trackers, run_dir)
            self.session.listeners.append(lambda event: log(event, self.session.state))
        self._commit_callbacks: list[Callable[[Committed], None]] = []
        self._feed: Batches | None = None
        self._feed_state: dict[str, Any] | None = None
        self._skipped: SkippedSteps | None = None
        self._skipped_steps = 0
        self._plain = False  # whether a step is only counted; known after the first
        self._step = watched(self.session, read_losses) if progress and self.comm.rank == 0 else self.session.step
        self._preemption = preempt.watch(self) if run_dir is not None and checkpoint_every else None
        if resumed_from is None:
            self.session.begin()
            self._watch_first_step()

    # The loop

    def batches(self, loader: Iterable[Any]) -> Iterator[Any]:
        """Batches of `loader`, epoch after epoch, until `total_steps` are committed.

        With `replay` on, all probes of a stage get the same ones. A second call with the same loader goes on where the
        first was left.
        """
        feed = self._feed if self._feed is not None and self._feed.loader is loader else self._new_feed(loader)
        if self.raw_steps == 0:
            self.session.refresh()
        elif self.exploring and self.settings.replay and not feed.recording:
            feed.mark()
        calls, quiet = -1, 0
        while not self.done:
            yield feed.next()
            now = self.raw_steps + self._skipped_steps
            quiet = quiet + 1 if now == calls else 0
            calls = now
            if quiet >= _QUIET_BATCHES:
                raise RuntimeError(
                    f"`auto.step(loss)` was not called for {quiet} batches: call it after each `optimizer.step()`"
                )
        # Let the loader go: an iterator with workers that is left to the garbage collector takes seconds to end.
        self._feed_state, self._feed, self.session.stream = feed.state_dict(), None, None

    def step(self, loss: Tensor | float) -> StepInfo:
        """Count an optimizer step with this loss and set the LR of the next; stands where `scheduler.step()` would."""
        if type(loss) is Tensor and self._plain:
            try:
                return self._step(loss.data)  # no graph, and nothing is read from the device before the boundary
            except RunIsOverError:
                return self._step_after_end()
        return self._careful_step(loss)

    def track(self, **objects: Any) -> None:
        """Save and restore these around probes too: a GradScaler, an EMA, all with state_dict and load_state_dict."""
        if self.raw_steps:
            raise RuntimeError(f"`track` must be called before the first step, got it after {self.raw_steps}")
        self._track(objects)
        self.session.refresh()

    def extend(self, total_steps: int) -> None:
        """Change the budget, during the run or after it: the rest is planned anew from the present LR, without a jump.

        Shortening works too. After the end call `batches` again; an LR that has decayed to the bottom first warms up.
        While LRs are being probed it is refused.
        """
        self.session.extend(total_steps)

    def on_commit(self, callback: Callable[[Committed], None]) -> None:
        """Call `callback` with the event after every stretch that was committed."""
        self._commit_callbacks.append(callback)

    def on_event(self, callback: Callable[[Event], None]) -> None:
        """Call `callback` with every event as it is recorded."""
        self.session.listeners.append(callback)

    # What people ask

    @property
    def lr(self) -> float:
        """LR of the next step (first parameter group)."""
        return self.session.lr

    @property
    def averaged_model(self) -> nn.Module:
        """A copy of the model with the running average of its weights, at any time after the first committed step."""
        if self._averager is None:
            raise RuntimeError("weights are not averaged: `averaging` is off")
        return self._averager.model()

    def averaged(self) -> AbstractContextManager[None]:
        """Inside, the model holds its averaged weights, to be validated or saved; where there are none, its own."""
        return nullcontext() if self._averager is None else self._averager.averaged()

    def leave_average(self, *, put: bool = True) -> None:
        """Break the run off: the model keeps its averaged weights (or not) and the optimizer gets its momentum back."""
        if self._averager is not None and self._averager.begun:
            self._averager.finish(average=put)

    def restore_best(self) -> None:
        """With `keep_best`: put everything back as it was when the validation loss was lowest; on every rank.

        After the run, or in the middle of it: then the run goes on from there with the LRs that it would have had.
        While LRs are being probed it is refused. With `averaging` the model gets the averaged
        weights, which `evaluate` saw.
        """
        super().restore_best()
        self.leave_average()

    def rollback(self) -> None:
        """Put the model back to where the probe under way began, to save it or look at it; the probe starts again."""
        self.session.rollback()

    # Checkpoints

    def state_dict(self, *, live: bool = True) -> dict[str, Any]:
        """All that is needed to go on exactly, also in the middle of a probe.

        Holds the training state and the stage's snapshot of it, the random state and the data position. Loads under
        `weights_only`. Without `live` the training state is left to a framework that saves and loads it itself.

        Of several ranks each has its own. Accelerate saves rank 0's for all: with its optimizer this holds what belongs
        to every rank, and all must call it.
        """
        state = self._own_state(live)
        return gathered(state, self.comm) if live and self._accelerated else state

    def _own_state(self, live: bool) -> dict[str, Any]:
        session = self.session.state_dict()
        # A framework that keeps the model itself keeps x, which is what people load; the training goes on from y.
        apart = {} if live or self._averager is None else {"trained_at": self._averager.trained_at()}
        return {
            "autolrs": 1,
            **apart,
            "ranks": self.comm.size,
            "session": session,
            "snapshots": {token: self.host.dump(token) for token in self.session.tokens},
            "ratios": list(self.host.ratios),
            "live": self.host.copy_of_live(*(() if live else ("tracked", "rng"))),
            "feed": self._feed_state if self._feed is None else self._feed.state_dict(),
        }

    def save_point(self) -> None:
        """Write a durable point for `autolrs.resume` into `run_dir` now; on every rank, after the same step."""
        if self.run_dir is None:
            raise RuntimeError("a durable point needs a `run_dir`")
        self._point = checkpoint.save(self.run_dir, self._own_state(live=True), self.comm, self.host, self._point)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from `state_dict`: model, optimizer, tracked objects and random state stand where they stood then."""
        self._load(state_dict, own_journal=False)

    def _load(self, state_dict: dict[str, Any], *, own_journal: bool) -> None:
        if state_dict.get("autolrs") != 1:
            raise ValueError(f"not a state dict of AutoLRS, or of a newer one: version {state_dict.get('autolrs')!r}")
        state_dict = own(state_dict, self.comm, self.host.rng.get())
        saved = State.from_json(state_dict["session"]["state"])
        # What model and optimizer say is only remembered. An extended run's budget is the checkpoint's, and by default
        # averaging, with all that goes with it, depends on the budget.
        remembered = {"base_lr", "usual_lr", "proportional_steps", "rectified", "uncorrected", "normalised"}
        remembered |= {"trained_before", "total_steps"} | {"averaging", *AVERAGING_DEFAULTS} - self._given
        given = {k: v for k, v in self.settings.to_dict().items() if k not in remembered}
        if given["evaluate_cost"] is None:  # the checkpoint's may have been weighed
            del given["evaluate_cost"]
        checkpoint.check_same_run("the checkpoint", saved, given, self.session.state.validation)
        self._set_averaging(saved.settings.averaging)
        self._plain = False
        live = {**self.host.capture(), **state_dict["live"]}
        self.host.check(live)
        self.host.forget_snapshots()
        for token, tree in state_dict["snapshots"].items():
            self.host.put(token, tree)
        self.host.ratios = list(state_dict["ratios"])
        self.host.load(live)
        if self._averager is not None:
            self._averager.put_trained_at(state_dict.get("trained_at", []))
        if self._feed is None or state_dict["feed"] is None:
            self._feed_state = state_dict["feed"]
        else:
            self._feed.load_state_dict(state_dict["feed"])
        self.session.load_state_dict(state_dict["session"], own_journal=own_journal)
        self._watch_cost()

    # Inside

    def _new_journal(self) -> Journal | None:
        """On rank 0, which alone writes it; if that fails, every rank stops."""
        made: list[Journal] = []
        if self.run_dir is not None:
            run_dir = self.run_dir
            first(self.comm, lambda: made.append(Journal.create(run_dir)), "making the journal")
        return made[0] if made else None

    def _set_averaging(self, on: bool) -> None:
        """Its state is part of the training's, so that probes and failed stretches put it back."""
        if on and self._averager is None:
            self._averager = Averager(self.model, self.optimizer)
            self.host.tracked[AVERAGER], self.host.around_evaluate = self._averager, self._averager.averaged
        elif not on and self._averager is not None:
            del self.host.tracked[AVERAGER]
            self._averager, self.host.around_evaluate = None, nullcontext

    def _new_feed(self, loader: Iterable[Any]) -> Batches:
        settings = self.settings
        self._feed = feed = Batches(
            loader,
            LoaderRng(loader),
            replay=settings.replay,
            limit=settings.replay_bytes,
            size=size_of_batch,
            clone=clone_batch,
            note=self.session.note,
        )
        if self._feed_state is not None:
            feed.load_state_dict(self._feed_state)
            self._feed_state = None
        if settings.replay:
            self.session.stream = feed
        return feed

    def _track(self, objects: dict[str, Any]) -> None:
        for name, value in objects.items():
            if not (hasattr(value, "state_dict") and hasattr(value, "load_state_dict")):
                raise TypeError(f"`{name}` must have state_dict and load_state_dict, got {type(value).__name__}")
            self.host.tracked[name] = value
            if SkippedSteps.is_scaler(value):
                self._skipped = SkippedSteps(self.optimizer)

    def _on_event(self, event: Event) -> None:
        if isinstance(event, Asked) and isinstance(event.command, Commit) and self._weigher is not None:
            self._weigher.close()  # no search, and nothing to weigh for
        if isinstance(event, Committed):
            self._commits += 1
            if self._averager is not None and self.session.state.steps_left == 0:
                hand_over(self._averager, self.session, self.host)
            for callback in self._commit_callbacks:
                callback(event)
            if self.run_dir is not None:
                if self._checkpoint_every and self._commits % self._checkpoint_every == 0:
                    self.save_point()
                if self.comm.rank == 0:
                    checkpoint.save_schedule(self.run_dir, self.schedule)
        elif isinstance(event, (Extended, Finished)) and self.run_dir is not None and self._checkpoint_every:
            self.save_point()

    def _careful_step(self, loss: Any) -> StepInfo:
        """A step that has more to it: the first one, losses that are not tensors, mixed precision, averaging."""
        loss = scalar(loss)
        if self._skipped is not None and not self.done:
            if self._skipped.whole_step():
                self._skipped_steps += 1
                return StepInfo(self.lr, self.exploring, self.committed_steps, self.raw_steps, False, False)
            loss = self._skipped.flagged(loss)
        averager = self._averager
        if averager is not None and goes_into(averager, self.session):
            averager.update()
        try:
            info = self._step(loss)
        except RunIsOverError:
            return self._step_after_end()
        self._plain = self._skipped is None and averager is None
        return info

    def _watch_cost(self) -> None:
        """Where nobody said what an `evaluate` costs, count what training puts through the model until it is known."""
        if self._weigher is not None:
            self._weigher.close()
        state = self.session.state
        unknown = state.settings.strategy == "horizon" and state.settings.evaluate_cost is None and state.validation
        self._weigher = Weigher(self.model) if unknown and not self.committed_steps else None
        self._watched_from = self.raw_steps

    def _weigh(self) -> None:
        """After the first probe, count what an `evaluate` costs: what the search can afford rests on it."""
        weigher, self._weigher, base = self._weigher, None, self.session.base
        if weigher is None or base is None:
            return
        costs: list[float | None] = []

        def measure() -> float:
            loss, cost = weigher.weigh(self.host.evaluate, self.raw_steps - self._watched_from)
            costs.append(cost)
            return loss

        self.host.restore(base)  # as it was before the probe, and as the next one will find it
        try:
            loss = average(self.comm, measure, "`evaluate`")
        except LostRankError:
            raise
        except Exception as error:  # it will be called again at once, and then this is an error
            self.session.note(f"`evaluate` failed before any training and was not weighed: {error!r}")
            return
        cost = first(self.comm, lambda: costs[0], "the cost of `evaluate`")
        self.session.record(Weighed(self.settings.evaluate_steps if cost is None else cost, loss))
        over = self.settings.evaluate_steps - weighing_share(self.settings)
        if over > 0:
            self.session.note(
                f"one `evaluate` counts as {self.settings.evaluate_steps:.3g} steps: to call it once takes the run "
                f"{over:.3g} steps beyond max_cost {self.settings.max_cost}; let it look at less data"
            )

    def _read(self, losses: Sequence[Any]) -> list[float]:
        foreign = self.host.foreign_lr(self.session.lr)
        if foreign is not None and losses:
            warnings.warn(
                f"the optimizer's LR is {foreign:.6g} but autolrs set {self.session.lr:.6g}: something else changes "
                "it, and the schedule found will not be the one that was trained",
                RuntimeWarning,
                stacklevel=5,
            )
        return read_losses(losses)

    def _watch_first_step(self) -> None:
        """See to it that weights which were loaded after this object was made are not lost by the first restore."""

        @torch.compiler.disable
        def look(*_: Any) -> None:
            if self.raw_steps:
                return
            if self.settings.replay and self._feed is None:
                message = (
                    "`replay` needs `auto.batches(loader)`: without it every probe sees the batches that come next"
                )
                self.session.note(message)
                warnings.warn(message, RuntimeWarning, stacklevel=4)
            if self.session.base is not None and not self.host.unchanged(self.session.base):
                self.session.refresh()
            self.host.set_lr(self.lr)  # an optimizer state that was loaded brought its own

        handle = self.optimizer.register_step_pre_hook(look)
        # Not in the hook itself: a hook that is removed while the hooks run breaks the others.
        self.session.listeners.append(lambda event: handle.remove() if self.raw_steps else None)

    def _step_after_end(self) -> StepInfo:
        warnings.warn(
            f"`auto.step` was called after the run was done ({self.committed_steps} committed steps): "
            "the step is not counted and the LR stays",
            RuntimeWarning,
            stacklevel=3,
        )
        return StepInfo(self.lr, False, self.committed_steps, self.raw_steps, True, False)


def _defaults(optimizer: torch.optim.Optimizer, total_steps: int | None) -> dict[str, Any]:
    """Here and not in the core: other adapters ask other things of their frameworks, or leave some of it to these."""
    first_steps = {"rectified": rectified(optimizer), "uncorrected": uncorrected(optimizer)}
    known: dict[str, Any] = {"keep_best": "auto", **first_steps}
    if "train_mode" in optimizer.param_groups[0]:  # Schedule-Free averages itself, and wants no decay
        return {"averaging": False, "decay_to": 1.0, **known}
    averages = averaging.by_default(total_steps)
    return {"averaging": averages, "proportional_steps": proportional_steps(optimizer), **known}


def _strategy(strategy: str | Strategy) -> tuple[Strategy, str]:
    chosen = strategies.get(strategy) if isinstance(strategy, str) else strategy
    return chosen, chosen.name


def _check(model: Any, optimizer: Any, evaluate: Any) -> None:
    if not isinstance(model, nn.Module):
        raise TypeError(f"`model` must be a torch.nn.Module, got {type(model).__name__}")
    if not any(True for _ in model.parameters()):
        raise ValueError("`model` has no parameters: nothing to train")
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise TypeError(f"`optimizer` must be a torch.optim.Optimizer, got {type(optimizer).__name__}")
    if getattr(optimizer.step, "_wrapped_by_lr_sched", False):
        raise ValueError(
            "the optimizer already has a scheduler attached: remove it, autolrs sets the learning rate itself"
        )
    if evaluate is not None and not callable(evaluate):
        raise TypeError(f"`evaluate` must be a function () -> float, got {type(evaluate).__name__}")


def _versions() -> dict[str, str]:
    return {
        "autolrs": autolrs.__version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": numpy.__version__,
        "scipy": scipy.__version__,
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU",
    }
