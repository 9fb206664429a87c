"""The Hugging Face Trainer: searches run between two of its steps, on batches of their own, and leave no trace in it.

`AutoLRSTrainerMixin` goes before any Trainer class; `AutoLRSTrainer` is the plain one. The mixin takes the scheduler's
place: the Trainer counts, logs, evaluates and saves committed steps alone, as if a known schedule were replayed.
Whenever the Trainer has the floor no probe is under way, so what it saves is never a probe's. Not here: DeepSpeed.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

try:
    import torch
    from accelerate import skip_first_batches
    from transformers import Trainer, TrainingArguments, set_seed
except ImportError as error:
    raise ImportError("autolrs.hf_ needs transformers and accelerate: pip install 'autolrs[hf]'") from error
from torch import Tensor

from autolrs.core import strategies
from autolrs.core.engine import State, Strategy
from autolrs.core.schedule import Schedule
from autolrs.core.types import Command, Commit, Committed, peak_lr
from autolrs.pytorch.auto import AutoLRS
from autolrs.pytorch.rng import LoaderRng
from autolrs.run import journal

EVAL_BATCHES = 10  # as in the paper
_OWN = {
    "model": "it is the Trainer's",
    "optimizer": "it is the Trainer's",
    "total_steps": "it follows from `max_steps` or `num_train_epochs` of TrainingArguments",
    "evaluate": "the Trainer's own loss on `eval_batches` batches of `eval_dataset` is used",
}


if TYPE_CHECKING:
    _Base = Trainer
else:
    _Base = object


class AutoLRSTrainerMixin(_Base):
    """Finds the learning-rate schedule while a Trainer trains: `class MyTrainer(AutoLRSTrainerMixin, Trainer)`.

    Args:
        autolrs: keywords of `autolrs.AutoLRS`, such as {"strategy": "paper", "lr": (1e-5, 1e-2), "run_dir": "runs/a"},
            and `eval_batches`: from how many batches of `eval_dataset` a validation loss is taken; 0 uses none.

    The budget is `max_steps` or what `num_train_epochs` comes to, and `warmup_steps` is honoured. `trainer.auto` is the
    `AutoLRS` object of the latest `train()`.
    """

    auto: _TrainerAutoLRS
    model: Any
    optimizer: Any  # Accelerate's once training has begun
    lr_scheduler: Any

    def __init__(self, *args: Any, autolrs: dict[str, Any] | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._autolrs = {"eval_batches": EVAL_BATCHES, **(autolrs or {})}
        for name, reason in _OWN.items():
            if name in self._autolrs:
                raise TypeError(f"`{name}` cannot be given in `autolrs`: {reason}")
        _check(self)
        self._probing, self._resuming, self._begun = False, False, False
        self._losses: list[Tensor] = []  # of the micro-batches of the step under way

    # What the Trainer calls

    def train(self, resume_from_checkpoint: Any = None, *args: Any, **kwargs: Any) -> Any:
        """As the Trainer's own."""
        self._resuming = bool(resume_from_checkpoint)
        output = super().train(resume_from_checkpoint, *args, **kwargs)
        # Ended by a callback (early stopping, a time limit); the best checkpoint, if that was loaded, stays.
        best_loaded = self.args.load_best_model_at_end and self.state.best_model_checkpoint is not None
        self.auto.leave_average(put=not best_loaded)
        return output

    def evaluation_loop(self, *args: Any, **kwargs: Any) -> Any:
        """As the Trainer's own, on the averaged weights, which the run is for."""
        with self._averaged():
            return super().evaluation_loop(*args, **kwargs)

    def save_model(self, *args: Any, **kwargs: Any) -> None:
        """As the Trainer's own, of the averaged weights; those that are trained are in `scheduler.pt`."""
        with self._averaged():
            super().save_model(*args, **kwargs)

    def create_scheduler(self, num_training_steps: int, optimizer: Any = None) -> Any:
        """The object that stands in for a scheduler; made anew by every `train()`."""
        if self.lr_scheduler is None:
            self._probe_loader = self.get_train_dataloader()
            self.auto = self._make_auto(num_training_steps, optimizer or self.optimizer)
            self.lr_scheduler = FoundLR(self, num_training_steps)
            self._created_lr_scheduler = True
            self._losses, self._begun = [], False
        return self.lr_scheduler

    def training_step(self, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Tensor:
        """As the Trainer's own; before the first one of a run the first search is made."""
        if not self._begun:
            self._begin()
        loss: Tensor = super().training_step(model, inputs, *args, **kwargs)
        # They add up to the step's mean loss: the Trainer has divided each by the number of micro-batches or tokens.
        self._losses = [*self._losses, loss][-self.current_gradient_accumulation_steps :]
        return loss

    def log(self, *args: Any, **kwargs: Any) -> None:
        """As the Trainer's own; what a `compute_loss` logs from inside a probe is dropped."""
        if not self._probing:
            super().log(*args, **kwargs)

    # Inside

    def _averaged(self) -> AbstractContextManager[None]:
        auto = getattr(self, "auto", None)  # there is none before `train`
        return nullcontext() if auto is None else auto.averaged()

    def _make_auto(self, total_steps: int, optimizer: Any) -> _TrainerAutoLRS:
        options = dict(self._autolrs)
        eval_batches = options.pop("eval_batches")
        evaluate = self._validation_loss if eval_batches and self.eval_dataset is not None else None
        run_dir = options.pop("run_dir", None)
        going_on = self._resuming and run_dir is not None and (Path(run_dir) / journal.NAME).exists()
        warmup = self.args.get_warmup_steps(total_steps)
        if warmup:
            options.setdefault("warmup_steps", warmup)
        strategy = options.pop("strategy", "horizon")
        strategy = strategies.get(strategy) if isinstance(strategy, str) else strategy
        _start_lrs(optimizer)
        auto = _TrainerAutoLRS(
            self.model,
            optimizer,
            total_steps=total_steps,
            strategy=_Unguarded(strategy),
            evaluate=evaluate,
            run_dir=None if going_on else run_dir,
            **{"checkpoint_every": 0, "keep_winner": False, "keep_best": False, **options},
        )
        if going_on:
            auto.run_dir, auto.going_on = Path(run_dir), True
        if self.accelerator.scaler is not None:  # not by `track`: the Trainer itself says when a step was skipped
            auto.host.tracked["scaler"] = self.accelerator.scaler
        auto.on_commit(_warn_if_not_finite)
        return auto

    def _begin(self) -> None:
        """Before the first step of a `train()`: everything stands where the training begins, random state included."""
        if self.state.global_step and not self.auto.raw_steps:
            raise ValueError(
                f"the checkpoint of step {self.state.global_step} holds no state of autolrs (`save_only_model`?): "
                "a run cannot go on from it; load its weights and train anew"
            )
        self._begun = True
        with self._untouched():
            self._eval_batches = self._draw_eval_batches()
            self.auto.session.refresh()  # what callbacks or a checkpoint changed since the scheduler was made
        if self.auto.exploring:
            self._explore(self.state.global_step)

    def _count_step(self) -> None:
        """The optimizer has stepped: tell autolrs, and if a search is due, make it before anybody looks."""
        self.auto.step(sum(self._losses[1:], self._losses[0]))
        if self.auto.exploring:
            self._explore(self.state.global_step + 1)
        elif self.auto.done:
            self.auto.host.set_lr(self.auto.lr)  # where a replayed schedule ends

    def _explore(self, position: int) -> None:
        """Run probes until a committed step is next, on the batches that training will see after `position` steps."""
        stream = self.auto.batches(self._upcoming(position))
        with self._untouched():
            try:
                while self.auto.exploring:
                    self._probe_step(stream)
            except BaseException:
                self.auto.rollback()  # whoever saves the model after an error or Ctrl-C must not get a probe's
                raise
            finally:
                self.auto._feed = self.auto._feed_state = self.auto.session.stream = None
                self.model_wrapped.zero_grad()

    def _probe_step(self, stream: Iterator[Any]) -> None:
        """One optimizer step as `Trainer._run_epoch` makes it, without its counters, callbacks and logs."""
        model, accelerator = self.model_wrapped, self.accelerator
        model.zero_grad()
        batches, items = self.get_batch_samples(stream, self.args.gradient_accumulation_steps, self.args.device)
        self.current_gradient_accumulation_steps = len(batches)
        losses = []
        for left, inputs in zip(reversed(range(len(batches))), batches, strict=True):
            accelerator.gradient_state._set_sync_gradients(not left)
            apart = left and not accelerator.gradient_state.plugin_kwargs.get("sync_each_batch", False)
            with accelerator.no_sync(model=model) if apart else nullcontext():
                losses.append(super().training_step(model, inputs, items))
        if self.args.max_grad_norm > 0:
            self._clip_grad_norm(model)
        self.optimizer.step()
        # Also one that mixed precision skipped: all probes begin at the same scale, and a lost one must come to an end.
        self.auto.step(sum(losses[1:], losses[0]))

    def _upcoming(self, position: int) -> _Upcoming:
        """The batches after `position` steps; an iterable dataset, which cannot be skipped into, from its beginning."""
        loader, accumulation = self._probe_loader, self.args.gradient_accumulation_steps
        if isinstance(loader.dataset, torch.utils.data.IterableDataset):
            return _Upcoming(loader, self.auto.session.state.stage, 0)
        epoch, steps = divmod(position, math.ceil(len(loader) / accumulation))
        return _Upcoming(loader, epoch, steps * accumulation)

    def _draw_eval_batches(self) -> list[Any]:
        """A fixed few batches of the (first) eval dataset, drawn from the same random state in every process."""
        if not self.auto.session.state.validation:
            return []
        name = next(iter(self.eval_dataset)) if isinstance(self.eval_dataset, dict) else None
        set_seed(self.args.seed)
        return list(islice(self.get_eval_dataloader(name), self._autolrs["eval_batches"]))

    def _validation_loss(self) -> float:
        """The Trainer's own loss on the fixed batches; no callback hears of it."""
        model, batches = self.model_wrapped, self._eval_batches
        self.optimizer.eval()
        losses: list[Any] = [self.prediction_step(model, batch, prediction_loss_only=True)[0] for batch in batches]
        if not losses or losses[0] is None:
            raise ValueError("`eval_dataset` gives no loss (it is empty or has no labels): set `eval_batches` to 0")
        self.optimizer.train()
        return float(torch.stack(losses).mean())

    @contextmanager
    def _untouched(self) -> Iterator[None]:
        """Whatever runs inside leaves random state, loaders' generators and Accelerate's bookkeeping as they were."""
        rng, gradients = LoaderRng(self._probe_loader), self.accelerator.gradient_state
        state, loaders, sync = rng.get(), gradients.dataloader_references, gradients.sync_gradients
        micro_batches = self.current_gradient_accumulation_steps
        self._probing = True
        try:
            yield
        finally:
            self._probing = False
            self.current_gradient_accumulation_steps = micro_batches
            gradients.dataloader_references = loaders
            gradients._set_sync_gradients(sync)
            rng.set(state)


class AutoLRSTrainer(AutoLRSTrainerMixin, Trainer):
    """`transformers.Trainer` that finds its learning-rate schedule."""


class FoundLR:
    """What the Trainer takes for its scheduler: the LRs are autolrs's, and `scheduler.pt` holds its state."""

    def __init__(self, trainer: AutoLRSTrainerMixin, total_steps: int) -> None:
        self._trainer, self._total_steps = trainer, total_steps
        self.optimizer = trainer.auto.optimizer

    def get_last_lr(self) -> list[float]:
        """LR of each parameter group: of the step just made until `step` is called, then of the next."""
        return [float(group["lr"]) for group in self.optimizer.param_groups]

    def step(self) -> None:
        """Count the optimizer's step."""
        self._trainer._count_step()

    def state_dict(self) -> dict[str, Any]:
        """Autolrs's part of a checkpoint; weights and optimizer state are in the Trainer's."""
        return self._trainer.auto.state_dict(live=False)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from a checkpoint whose weights and optimizer state are loaded; a new budget extends the run."""
        auto = self._trainer.auto
        if auto.going_on and auto.comm.rank == 0:
            assert auto.run_dir is not None
            auto.session.journal = journal.Journal.reopen(auto.run_dir)[0]
        live = {
            "tracked": state_dict.get("live", {}).get("tracked", {})
        }  # the Trainer has the random state too, of every rank
        auto._load({**state_dict, "live": live}, own_journal=auto.going_on)
        if auto.settings.total_steps != self._total_steps:
            auto.extend(self._total_steps)

    def __reduce__(self) -> Any:
        """A pickled copy is the schedule found so far: the search itself goes on through `state_dict` alone."""
        return Schedule.from_json, (self._trainer.auto.schedule.to_json(),)


class _TrainerAutoLRS(AutoLRS):
    going_on = False  # whether the journal in `run_dir` is that of an earlier `train()`, to be written on

    def _watch_first_step(self) -> None:
        """The mixin does that: see `_begin`."""


class _Unguarded:
    """A strategy whose stretches are never undone: the Trainer cannot take back steps that it has counted and saved."""

    def __init__(self, strategy: Strategy) -> None:
        self._strategy, self.name = strategy, strategy.name
        self.judge, self.retained = strategy.judge, strategy.retained

    def decide(self, state: State) -> Command:
        command = self._strategy.decide(state)
        return replace(command, guarded=False, check_every=0) if isinstance(command, Commit) else command


class _Upcoming:
    """A loader that begins some batches into an epoch and goes on with the epochs after it."""

    def __init__(self, loader: Any, epoch: int, skip: int) -> None:
        self._loader, self._epoch, self._skip = loader, epoch, skip

    def __iter__(self) -> Iterator[Any]:
        if hasattr(self._loader, "set_epoch"):
            self._loader.set_epoch(self._epoch)
        loader = skip_first_batches(self._loader, self._skip) if self._skip else self._loader
        self._epoch, self._skip = self._epoch + 1, 0
        return iter(loader)


def _check(trainer: Any) -> None:
    if trainer.lr_scheduler is not None:
        raise ValueError(
            "autolrs takes the scheduler's place: give `optimizers=(optimizer, None)`, without a scheduler"
        )
    kind, default = trainer.args.lr_scheduler_type, TrainingArguments.lr_scheduler_type
    if kind != default:
        raise ValueError(
            f"`lr_scheduler_type` is {kind.value!r}, but autolrs finds the schedule: leave it at {default!r}"
        )
    if trainer.is_deepspeed_enabled:
        raise ValueError("autolrs cannot probe under DeepSpeed, which keeps weights and optimizer state to itself")
    if trainer._autolrs.get("keep_winner"):
        raise ValueError("`keep_winner` must be off: the Trainer takes every committed step itself")
    if trainer._autolrs.get("keep_best"):
        raise ValueError("`keep_best` must be off: `load_best_model_at_end` of TrainingArguments does that")


def _start_lrs(optimizer: Any) -> None:
    """Every `train()` begins with the LRs that the optimizer was made with, as under the Trainer's own schedulers."""
    for group in optimizer.param_groups:
        start = group.setdefault("initial_lr", float(group["lr"]))
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(start)
        else:
            group["lr"] = start


def _warn_if_not_finite(event: Committed) -> None:
    if not all(map(math.isfinite, event.losses)):
        warnings.warn(
            "the loss was not finite in the stretch just trained: go back to a checkpoint before it with a lower "
            f"`lr` interval (its highest LR was {peak_lr(event.profile):.3g})",
            RuntimeWarning,
            stacklevel=2,
        )
