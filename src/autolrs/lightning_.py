"""`AutoLRSCallback`: one callback that finds the learning-rate schedule of a Lightning training.

Committed steps are the Trainer's own. Probes run inside the callback's hooks, in a loop of their own that is built from
Lightning's parts (strategy, precision, accumulation, clipping, the module's hooks) and reads a second iterator of the
train dataloader; counters, loggers and other callbacks do not see them. Nothing is decided here: see `run/session.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

try:
    from lightning.fabric.utilities.data import _set_sampler_epoch
    from lightning.pytorch import Callback, LightningModule
    from lightning.pytorch.callbacks import StochasticWeightAveraging, WeightAveraging
    from lightning.pytorch.utilities.signature_utils import is_param_in_hook_signature
except ModuleNotFoundError as error:
    if (error.name or "").partition(".")[0] != "lightning":
        raise
    raise ImportError("autolrs.lightning_ needs Lightning: pip install 'autolrs[lightning]'") from error

from torch import Tensor

from autolrs.core.engine import Strategy
from autolrs.core.schedule import Schedule
from autolrs.core.types import Event, Failed
from autolrs.lightning_probes_ import ProbeSteps, Validation, mean, same_randomness, saves_averaged, second, unseen
from autolrs.pytorch.auto import AutoLRS
from autolrs.pytorch.per_rank import gathered
from autolrs.run.journal import NAME as JOURNAL
from autolrs.run.journal import Journal


class AutoLRSCallback(Callback):
    """Finds the learning-rate schedule of the module's optimizer while the Trainer trains it.

    Args:
        total_steps: optimizer steps after which training ends, whatever the Trainer's `max_epochs` and `max_steps` say;
            None takes what those two give.
        lr: the search interval (min, max), or "auto" to find it by a range test.
        strategy: "horizon", "paper", or an object of `core.strategies`.
        val_batches: the validation loss is the module's `validation_step` on this many first batches of the validation
            dataloader; 0 judges by the training loss alone.
        monitor: the name under which `validation_step` logs its loss. None takes the loss that it returns, or else the
            one value that it logs with "loss" in its name.
        track: names of attributes of the module, with state_dict and load_state_dict, that training changes (an EMA
            that is not a module, say): they are restored after probes too.
        run_dir: folder for the journal and the schedule; checkpoints are Lightning's.
        seed: of the search where it draws.
        settings: any field of `autolrs.Settings` by name, but for `keep_winner` and `keep_best`.
    """

    def __init__(
        self,
        total_steps: int | None = None,
        *,
        lr: tuple[float, float] | str = "auto",
        strategy: str | Strategy = "horizon",
        val_batches: int = 10,
        monitor: str | None = None,
        track: Sequence[str] = (),
        run_dir: str | Path | None = None,
        seed: int = 0,
        **settings: Any,
    ) -> None:
        if settings.get("keep_winner"):
            raise ValueError("`keep_winner` must be off: a kept probe's steps would be missing from `global_step`")
        if settings.get("keep_best"):
            raise ValueError("`keep_best` must be off: ModelCheckpoint(monitor=...) keeps Lightning's best checkpoint")
        if val_batches < 0:
            raise ValueError(f"`val_batches` must not be negative, got {val_batches}")
        self.auto: _Auto | None = None  # from the start of training on
        self._total_steps, self._val_batches, self._monitor, self._track = total_steps, val_batches, monitor, track
        self._run_dir = run_dir
        self._options = {"lr": lr, "strategy": strategy, "seed": seed, "keep_best": False, **settings}
        self._saved: dict[str, Any] | None = None  # from a checkpoint, until training starts
        self._lrs: list[float] = []  # the optimizer's own, before a checkpoint brought others
        self._losses: list[Tensor] = []  # of the batches since the last optimizer step
        self._loss: Any = math.nan  # of that step
        self._global_step = 0
        self._alone = False  # whether other ranks may be gone
        self._shown = ExitStack()  # open while validation sees the averaged weights

    @property
    def schedule(self) -> Schedule:
        """The schedule committed so far."""
        if self.auto is None:
            raise RuntimeError("there is no schedule yet: training has not started")
        return self.auto.schedule

    # Lightning's hooks

    def setup(self, trainer: Any, pl_module: LightningModule, stage: str) -> None:
        """Refuse what cannot work, before anything is built."""
        if stage != "fit" or trainer.fast_dev_run:
            return
        if not pl_module.automatic_optimization:
            raise ValueError(
                f"{type(pl_module).__name__} uses manual optimization, where only its own code knows what a step is: "
                "use `autolrs.AutoLRS` there, or set `automatic_optimization = True`"
            )
        if is_param_in_hook_signature(pl_module.training_step, "dataloader_iter", explicit=True):
            raise ValueError("`training_step(dataloader_iter)` cannot be probed: let it take a batch")
        if any(isinstance(callback, StochasticWeightAveraging) for callback in trainer.callbacks):
            raise ValueError("StochasticWeightAveraging sets the learning rate itself: use Lightning's WeightAveraging")
        if trainer.strategy.handles_gradient_accumulation:
            raise ValueError(f"{type(trainer.strategy).__name__} keeps state that a probe cannot put back")
        # First of all callbacks, so that none of them meets the LR of a step that is over, or of a probe.
        trainer.callbacks = [self, *(callback for callback in trainer.callbacks if callback is not self)]
        if self._total_steps is not None:
            _end_at(trainer, self._total_steps)

    def on_fit_start(self, trainer: Any, pl_module: LightningModule) -> None:
        """Refuse a scheduler; remember the optimizer's LRs."""
        if trainer.fast_dev_run:
            return
        if trainer.lr_scheduler_configs:
            name = type(trainer.lr_scheduler_configs[0].scheduler).__name__
            raise ValueError(
                f"`configure_optimizers` of {type(pl_module).__name__} returns a scheduler ({name}): return the "
                "optimizer alone, autolrs sets the learning rate itself"
            )
        self._lrs = [float(group["lr"]) for group in trainer.optimizers[0].param_groups]

    def on_train_start(self, trainer: Any, pl_module: LightningModule) -> None:
        """Begin, or go on from a checkpoint, whose every part is loaded by now."""
        if trainer.fast_dev_run:
            return
        self._global_step, self._alone = trainer.global_step, False
        total = self._total_steps or _estimated_steps(trainer)
        validates = self._val_batches and trainer.enable_validation
        evaluate = self._evaluation(trainer) if validates else None
        options = {**self._options, "total_steps": total, "evaluate": evaluate, "run_dir": self._run_dir}
        if any(isinstance(callback, WeightAveraging) for callback in trainer.callbacks):
            options.setdefault("averaging", False)  # one average is enough
        saved, self._saved = self._saved, None
        if saved is None:
            self.auto = auto = _Auto(pl_module, trainer.optimizers[0], checkpoint_every=0, **options)
            auto.track(**_tracked(trainer, self._track))
        else:
            self.auto = auto = self._go_on(trainer, saved, options)
            if total is not None and total != auto.settings.total_steps:
                auto.extend(total)
        auto.on_event(lambda event: _longer(trainer, auto, event))
        if auto.settings.averaging:
            saves_averaged(trainer, auto.averaged)
        if evaluate is not None:
            auto.host.evaluate()  # a validation loss that cannot be had is better known now
        self._explore(trainer, auto)

    def on_train_epoch_start(self, trainer: Any, pl_module: LightningModule) -> None:
        """Going on from the end of an epoch Lightning counts that one twice, and DistributedSamplers shuffle by it."""
        if self.auto is not None:
            _tell_epoch(trainer)

    def on_train_batch_end(
        self, trainer: Any, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Count the optimizer step, if this batch ended in one, and probe if that is due."""
        auto = self.auto
        if auto is None or auto.done:
            return
        if outputs:  # Lightning divides each batch's loss by their number
            self._losses.append(outputs["loss"] * trainer.accumulate_grad_batches)
        if trainer.global_step == self._global_step:
            return
        self._global_step = trainer.global_step
        self._loss, self._losses = mean(self._losses, self._loss), []
        auto.step(self._loss)
        if auto.done:
            auto.host.set_lr(auto.lr)  # where a scheduler would leave it
            trainer.fit_loop.epoch_loop.max_steps = trainer.global_step
        self._explore(trainer, auto)

    def on_validation_start(self, trainer: Any, pl_module: LightningModule) -> None:
        """Have the Trainer validate the averaged weights, which the run is for."""
        if self.auto is not None and trainer.state.fn == "fit":
            self._shown.enter_context(self.auto.averaged())

    def on_validation_end(self, trainer: Any, pl_module: LightningModule) -> None:
        """Put those back that are trained."""
        self._shown.close()

    def teardown(self, trainer: Any, pl_module: LightningModule, stage: str) -> None:
        """A run that others have ended (EarlyStopping, a time limit) ends with its average, too."""
        if self.auto is not None and stage == "fit":
            self.auto.leave_average()

    def state_dict(self) -> dict[str, Any]:
        """The search, its snapshots, and the weights that are trained where the checkpoint's model has the average."""
        if self.auto is None:
            return self._saved or {}
        state = {**self.auto.state_dict(live=False), "feed": None}
        return {**state, "ranks": 1} if self._alone else gathered(state, self.auto.comm)

    def on_exception(self, trainer: Any, pl_module: LightningModule, exception: BaseException) -> None:
        """Expect nothing of other ranks any more: whoever saves a checkpoint now may be alone."""
        self._alone = True
        self._shown.close()  # it may have come from a validation

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Keep the state until the optimizer's and the loops' are loaded too, which Lightning does later."""
        self._saved = state_dict

    # Inside

    def _evaluation(self, trainer: Any) -> Callable[[], Any]:
        return Validation(trainer, self._val_batches, self._monitor)

    def _go_on(self, trainer: Any, saved: dict[str, Any], options: dict[str, Any]) -> _Auto:
        optimizer = trainer.optimizers[0]
        for group, lr in zip(optimizer.param_groups, self._lrs, strict=True):
            group["lr"] = group["lr"].fill_(lr) if isinstance(group["lr"], Tensor) else lr
        # A journal that is there already is this run's: it is cut back to the checkpoint's point and written on.
        own_journal = self._run_dir is not None and (Path(self._run_dir) / JOURNAL).exists()
        auto = _Auto(
            trainer.lightning_module,
            optimizer,
            checkpoint_every=0,
            **{**options, "run_dir": None if own_journal else self._run_dir},
        )
        if own_journal:
            auto.run_dir = Path(str(self._run_dir))
            auto.session.journal = Journal.reopen(auto.run_dir)[0] if trainer.is_global_zero else None
        auto._track(_tracked(trainer, self._track))
        fit_loop = trainer.fit_loop
        if fit_loop.restarting and trainer.world_size > 1:
            # Lightning makes the iterator over an epoch's rest before it tells a DistributedSampler the epoch.
            states = fit_loop._combined_loader._state_dicts()
            _tell_epoch(trainer)
            fit_loop._combined_loader._load_state_dicts(states)
            iter(fit_loop._data_fetcher)
        auto._load(saved, own_journal=own_journal)
        if not fit_loop.restarting:  # an epoch begins: its order is drawn from the random state just loaded
            iter(fit_loop._data_fetcher)
        return auto

    def _explore(self, trainer: Any, auto: _Auto) -> None:
        """Run the probes that are due; everything is then as it was before, but for the LR."""
        if not auto.exploring:
            return
        train = trainer.fit_loop._combined_loader
        gradients = [(p, None if p.grad is None else p.grad.clone()) for p in trainer.lightning_module.parameters()]
        loader, steps = second(train), ProbeSteps(trainer)
        with same_randomness(train.flattened), unseen(trainer, lambda *_, **__: None) as attributes:
            try:
                batches = auto.batches(loader)
                while auto.exploring:
                    if auto.session.command_steps == 0:
                        attributes.restore()
                    auto.step(steps.run_one(batches))
            except BaseException:
                auto.rollback()  # whoever saves a checkpoint now must not find the probe's weights
                raise
            finally:
                auto.let_go()
                loader.reset()
                _tell_epoch(trainer)
                for parameter, gradient in gradients:
                    parameter.grad = gradient


class _Auto(AutoLRS):
    """An `AutoLRS` whose batches are for probes alone."""

    def let_go(self) -> None:
        """Forget the probes' batches; the next ones get others."""
        self._feed, self._feed_state, self.session.stream = None, None, None

    def _watch_first_step(self) -> None:
        """Not needed: nothing is loaded any more once training starts."""


def _tell_epoch(trainer: Any) -> None:
    for loader in trainer.fit_loop._combined_loader.flattened:
        _set_sampler_epoch(loader, trainer.current_epoch)


def _end_at(trainer: Any, step: int) -> None:
    trainer.fit_loop.epoch_loop.max_steps, trainer.fit_loop.max_epochs = step, -1


def _longer(trainer: Any, auto: AutoLRS, event: Event) -> None:
    """Steps that were undone are in `global_step` already: the run goes on for as many."""
    if isinstance(event, Failed) and auto.settings.total_steps is not None:
        _end_at(trainer, trainer.global_step + auto.settings.total_steps - auto.committed_steps)


def _estimated_steps(trainer: Any) -> int | None:
    steps = trainer.estimated_stepping_batches
    return int(steps) if 0 < steps < math.inf else None


def _tracked(trainer: Any, names: Sequence[str]) -> dict[str, Any]:
    module = trainer.lightning_module
    return {"precision": trainer.precision_plugin, **{f"module.{name}": getattr(module, name) for name in names}}
