"""`fit` for the plain loop, `AutoLRS` for a loop of your own: a thin shell over `run/session.py`."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import jax

import autolrs
from autolrs.core import averaging
from autolrs.core.engine import State, Strategy
from autolrs.core.types import Committed, Event, Extended, Finished, Resumed
from autolrs.jax_.averaging import Averager, Params, find
from autolrs.jax_.host import JaxHost, copy_tree, read_losses
from autolrs.jax_.hyperparams import averages_itself
from autolrs.jax_.usual import normalised, trained_before, usual_lr
from autolrs.run import archive, files
from autolrs.run.averages import goes_into, hand_over
from autolrs.run.facade import Facade
from autolrs.run.replay import Batches
from autolrs.run.start import open_session
from autolrs.run.steps import StepInfo

NAME = "checkpoint.npz"
_GIVE_PARAMS = "give the function that finds them in the state, as in params=lambda state: state[0]"
_UNKNOWN = f"weights are not averaged, as they would be if it were known which they are: {_GIVE_PARAMS}"
_QUIET_BATCHES = 1000  # batches without a step after which `batches` says that `step` was forgotten

StepFunction = Callable[[Any, Any, Any], tuple[Any, Any]]


class AutoLRS(Facade):
    """Finds the learning-rate schedule of a training whose state is a pytree.

    Args:
        state: parameters, optimizer state, random keys: all that a step changes, as one pytree; `auto.state` later on.
        total_steps: committed steps; None goes on until the loop is left (strategy "paper" only).
        lr: the search interval (min, max), or "auto" to find it by a range test.
        strategy: "horizon" (one search on miniature runs), "paper" (Algorithm 1), or an object of `core.strategies`.
        evaluate: `state -> float`, the validation loss on a small fixed subset.
        params: `state -> weights`, the part of the state that is trained and may be averaged, as in
            `lambda state: state[0]`; None takes `state.params` or `state["params"]`, if there is one.
        run_dir: folder for the journal, the schedule and a checkpoint after commits; None keeps everything in memory.
        resume: go on with the run that `run_dir` holds, if it holds one; `state` is then one built as it was at first.
        seed: of the search where it draws (random search).
        checkpoint_every: commits between two checkpoints in `run_dir`; 0 writes none.
        settings: any field of `autolrs.Settings` by name.
    """

    def __init__(
        self,
        state: Any,
        *,
        total_steps: int | None = None,
        lr: tuple[float, float] | str = "auto",
        strategy: str | Strategy = "horizon",
        evaluate: Callable[[Any], Any] | None = None,
        params: Params | None = None,
        run_dir: str | Path | None = None,
        resume: bool = False,
        seed: int = 0,
        checkpoint_every: int = 1,
        **settings: Any,
    ) -> None:
        if checkpoint_every < 0:
            raise ValueError(f"`checkpoint_every` must not be negative, got {checkpoint_every}")
        self.host = JaxHost(state, evaluate)
        averager = find(self.host, params)
        self.run_dir = None if run_dir is None else Path(run_dir)
        horizon = getattr(strategy, "name", strategy) == "horizon"
        if horizon:
            settings.setdefault("keep_best", "auto")
        wanted = horizon and averaging.by_default(total_steps) and not averages_itself(self.host.state)
        if settings.get("averaging"):
            _check_known(averager)
        self._checkpoint_every, self._commits = checkpoint_every, 0
        self._feed: Batches | None = None
        self._feed_state: dict[str, Any] | None = None
        self.session, self._found = open_session(
            self.host,
            strategy,
            validation=evaluate is not None,
            run_dir=run_dir,
            resume=resume,
            read=read_losses,
            versions={"autolrs": autolrs.__version__, "jax": jax.__version__},
            known={"averaging": wanted and averager is not None, **(_seen(state) if horizon else {})},
            **{"total_steps": total_steps, "lr": lr, "seed": seed, **settings},
        )
        self.session.listeners.append(self._on_event)
        self.session.hand_over = self.restore_best
        unknown = wanted and averager is None and "averaging" not in settings and not self._found
        self._remarks = [_UNKNOWN] if unknown else []
        self._averager = _check_known(averager) if self.settings.averaging else None
        if self._averager is not None:  # its state is part of the training's: probes and failed stretches put it back
            self.host.tracked, self.host.around_evaluate = self._averager, self._averager.averaged
        if self._found and self.run_dir is not None and (self.run_dir / NAME).exists():
            self._load(archive.load(self.run_dir / NAME), own_journal=True)

    # The loop

    @property
    def state(self) -> Any:
        """The training state now. Read it anew for every step: around probes it is put back."""
        return self.host.state

    @state.setter
    def state(self, state: Any) -> None:
        self.host.state = state

    @property
    def lr(self) -> Any:
        """LR of the next step, a scalar on the device."""
        self._begin()
        return self.host.lr

    def batches(self, loader: Iterable[Any]) -> Iterator[Any]:
        """Batches of `loader`, epoch after epoch, until `total_steps` are committed; see `autolrs.AutoLRS.batches`."""
        feed = self._feed if self._feed is not None and self._feed.loader is loader else self._new_feed(loader)
        self._begin()
        if self.exploring and self.settings.replay and not feed.recording:
            feed.mark()
        steps, quiet = -1, 0
        while not self.done:
            yield feed.next()
            quiet = quiet + 1 if self.raw_steps == steps else 0
            steps = self.raw_steps
            if quiet >= _QUIET_BATCHES:
                raise RuntimeError(f"`auto.step(loss)` was not called for {quiet} batches: call it after each step")
        self._feed_state, self._feed, self.session.stream = feed.state_dict(), None, None

    def step(self, loss: Any) -> StepInfo:
        """Count a step with this loss, an array on the device that nobody reads yet, and set the LR of the next.

        Assign `auto.state` before it: with averaging this moves its weights.
        """
        if self._averager is not None and goes_into(self._averager, self.session):
            self._averager.update()
        return self.session.step(loss)

    def extend(self, total_steps: int) -> None:
        """Change the budget, during the run or after it; see `autolrs.AutoLRS.extend`."""
        self.session.extend(total_steps)

    @property
    def averaged_state(self) -> Any:
        """A copy of the state with the running average of its weights, at any time after the first committed step."""
        if self._averager is None:
            raise RuntimeError("weights are not averaged: `averaging` is off")
        return self._averager.state()

    def restore_best(self) -> None:
        """With `keep_best`: put the state back as it was when the validation loss was lowest.

        After the run, or in the middle of it: then the run goes on from there with the LRs that it would have had.
        While LRs are being probed it is refused. With `averaging` the state gets the averaged weights, which `evaluate`
        saw.
        """
        super().restore_best()
        if self._averager is not None and self._averager.begun:
            self._averager.finish(average=True)

    # Checkpoints

    def state_dict(self) -> dict[str, Any]:
        """All that is needed to go on exactly, also in the middle of a probe: a flat dictionary of numpy arrays."""
        return archive.pack(self._tree())

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from `state_dict`, on an object that was made as that one was."""
        self._load(archive.unpack(state_dict), own_journal=False)

    def _tree(self) -> dict[str, Any]:
        session = self.session.state_dict()
        return {
            "session": session,
            "host": self.host.dump(self.session.tokens),
            "feed": self._feed_state if self._feed is None else self._feed.state_dict(),
        }

    def _load(self, tree: dict[str, Any], *, own_journal: bool) -> None:
        saved, mine = State.from_json(tree["session"]["state"]).settings.averaging, self.settings.averaging
        if saved != mine:
            raise ValueError(f"`averaging` is {saved} in the checkpoint and {mine} here: a run goes on as it began")
        self.host.load(tree["host"])
        self._feed_state = tree["feed"]
        if self._feed is not None and self._feed_state is not None:
            self._feed.load_state_dict(self._feed_state)
        self.session.load_state_dict(tree["session"], own_journal=own_journal)

    # Inside

    def _begin(self) -> None:
        """At the first step, so that a state replaced or a loader given before it is what the first snapshot sees."""
        if self.session.begun:
            return
        if self.settings.replay and self._feed is None:
            message = "`replay` needs `auto.batches(loader)`: without it every probe sees the batches that come next"
            warnings.warn(message, RuntimeWarning, stacklevel=3)
        if self._found:
            assert self.session.journal is not None
            self.session.journal.append(Resumed(1))  # no checkpoint yet: the run starts anew
            self.session.go_on()
        else:
            self.session.begin()
        for remark in self._remarks:
            self.session.note(remark)

    def _new_feed(self, loader: Iterable[Any]) -> Batches:
        settings = self.settings
        self._feed = feed = Batches(
            loader,
            self.host.rng,
            replay=settings.replay,
            limit=settings.replay_bytes,
            size=lambda batch: sum(getattr(leaf, "nbytes", 64) for leaf in jax.tree.leaves(batch)),
            clone=copy_tree,
            note=self.session.note,
        )
        if self._feed_state is not None:
            feed.load_state_dict(self._feed_state)
            self._feed_state = None
        if settings.replay:
            self.session.stream = feed
        return feed

    def _on_event(self, event: Event) -> None:
        if isinstance(event, Committed) and self._averager is not None and self.session.state.steps_left == 0:
            hand_over(self._averager, self.session, self.host)
        if self.run_dir is None:
            return
        due = isinstance(event, (Extended, Finished))
        if isinstance(event, Committed):
            self._commits += 1
            due = self._checkpoint_every > 0 and self._commits % self._checkpoint_every == 0
            files.save_schedule(self.run_dir, self.schedule)
        if due and self._checkpoint_every:
            archive.save(self.run_dir / NAME, self._tree())


def _seen(state: Any) -> dict[str, Any]:
    return {"usual_lr": usual_lr(state), "normalised": normalised(state), "trained_before": trained_before(state)}


def _check_known(averager: Averager | None) -> Averager:
    if averager is None:
        raise ValueError(f"`averaging` needs to know the weights, got params=None: {_GIVE_PARAMS}")
    return averager


def fit(
    step: StepFunction,
    state: Any,
    batches: Iterable[Any],
    *,
    on_step: Callable[[StepInfo, Any, Any], None] | None = None,
    **options: Any,
) -> AutoLRS:
    """Train `state` for `total_steps` with `step(state, batch, lr) -> (state, loss)`, which you have jitted.

    `batches` must start anew each time it is iterated. `on_step(info, state, loss)` is called after every committed
    step, never for a probe's. All other options are those of `AutoLRS`, which is returned: see its `state`, `schedule`.
    """
    auto = AutoLRS(state, **options)
    for batch in auto.batches(batches):
        auto.state, loss = step(auto.state, batch, auto.lr)
        info = auto.step(loss)
        if on_step is not None and not info.exploring:
            on_step(info, auto.state, loss)
    return auto
