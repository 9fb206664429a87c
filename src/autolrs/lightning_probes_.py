"""Training and validation steps of a Lightning module that the Trainer, its loggers and its callbacks do not see.

Built from Lightning's own parts: strategy, precision plugin, accumulation, clipping, the module's hooks. Some of these
are internal to Lightning; this is the one file that uses them.
"""

from __future__ import annotations

import copy
import math
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from itertools import islice
from typing import Any

import torch
from lightning.pytorch.loggers.logger import DummyLogger
from lightning.pytorch.loops.optimization.automatic import _AutomaticOptimization
from lightning.pytorch.loops.utilities import _block_parallel_sync_behavior
from lightning.pytorch.trainer import call
from lightning.pytorch.utilities.combined_loader import CombinedLoader
from torch import Tensor

from autolrs.pytorch.attributes import Attributes
from autolrs.pytorch.rng import LoaderRng


class ProbeSteps(_AutomaticOptimization):
    """Lightning's own way to make an optimizer step, with counters that nobody reads."""

    def __init__(self, trainer: Any) -> None:
        super().__init__(trainer)
        self._batches, self._loss = 0, torch.tensor(math.nan)

    def run_one(self, batches: Iterator[Any]) -> Tensor:
        """One optimizer step on the next batches; returns their mean loss."""
        trainer, losses = self.trainer, []
        count = trainer.accumulate_grad_batches
        for i, (batch, _, _) in enumerate(islice(batches, count), start=1):
            index = self._batches
            self._batches += 1
            batch = _to_device(trainer, batch)
            call._call_lightning_module_hook(trainer, "on_train_batch_start", batch, index)
            call._call_strategy_hook(trainer, "on_train_batch_start", batch, index)
            arguments = trainer.fit_loop.epoch_loop._build_kwargs(OrderedDict(), batch, index)
            closure = self._make_closure(arguments, trainer.optimizers[0], index)
            if i < count:
                with _block_parallel_sync_behavior(trainer.strategy, block=True):
                    closure()
            else:
                self._optimizer_step(index, closure)
            result = closure.consume_result()
            outputs = {} if result.loss is None else result.asdict()
            if result.loss is not None:
                losses.append(result.loss * count)
            call._call_lightning_module_hook(trainer, "on_train_batch_end", outputs, batch, index)
        self._loss = mean(losses, self._loss)
        return self._loss


class Validation:
    """The loss of the module's `validation_step` on the first batches, unseen by loggers and callbacks."""

    def __init__(self, trainer: Any, batches: int, monitor: str | None) -> None:
        self._trainer, self._monitor = trainer, monitor
        self._loop = loop = trainer.fit_loop.epoch_loop.val_loop
        with same_randomness([None]):  # like Lightning's sanity check, which may have done this already
            trainer.validating = True
            loop.setup_data()
            trainer.training = True
        with same_randomness(loop._combined_loader.flattened):
            self._batches = list(islice(second(loop._combined_loader), batches))

    @torch.no_grad()
    def __call__(self) -> Tensor:
        trainer = self._trainer
        logged: dict[str, list[Any]] = defaultdict(list)
        with unseen(trainer, lambda name, value, *_, **__: logged[name].append(value)):
            trainer.validating = True
            try:
                self._hook("on_validation_start")
                self._hook("on_validation_epoch_start")
                returned = [self._step(*batch) for batch in self._batches]
                self._hook("on_validation_epoch_end")
                self._hook("on_validation_end")
                return torch.stack([_value(loss) for loss in self._choose(logged, returned)]).mean()
            finally:
                trainer.training = True

    def _step(self, batch: Any, index: int, loader: int) -> Any:
        loop, batch = self._loop, _to_device(self._trainer, batch)
        several = loop._is_sequential and loop.num_dataloaders > 1
        arguments = loop._build_kwargs(batch, index, loader if several else None)
        self._hook("on_validation_batch_start", *arguments.values())
        step_arguments = loop._build_step_args_from_hook_kwargs(arguments, "validation_step")
        output = call._call_strategy_hook(self._trainer, "validation_step", *step_arguments)
        self._hook("on_validation_batch_end", output, *arguments.values())
        return output.get("loss") if isinstance(output, Mapping) else output

    def _hook(self, name: str, *arguments: Any) -> None:
        call._call_lightning_module_hook(self._trainer, name, *arguments)

    def _choose(self, logged: Mapping[str, list[Any]], returned: list[Any]) -> list[Any]:
        """The validation losses among what was logged and returned."""
        if self._monitor is None and all(value is not None for value in returned):
            return returned
        names = [name for name in logged if ("loss" in name if self._monitor is None else name == self._monitor)]
        if len(names) != 1:
            wanted = "one value with 'loss' in its name" if self._monitor is None else repr(self._monitor)
            raise ValueError(
                f"`validation_step` must return a loss or log {wanted}, got {sorted(logged) or 'nothing'}: name the "
                "loss by `monitor=`, or judge by the training loss with `val_batches=0`"
            )
        return logged[names[0]]


@contextmanager
def unseen(trainer: Any, log: Callable[..., None]) -> Iterator[Attributes]:
    """No callback and no logger sees what happens inside, `self.log` calls `log`, and attributes are put back."""
    module = trainer.lightning_module
    callbacks, loggers, should_stop = trainer.callbacks, trainer.loggers, trainer.should_stop
    outer = vars(module).get("log")
    trainer.callbacks, trainer.loggers, vars(module)["log"] = [], [DummyLogger() for _ in loggers], log
    attributes = Attributes(module)
    try:
        yield attributes
    finally:
        trainer.callbacks, trainer.loggers, trainer.should_stop = callbacks, loggers, should_stop
        attributes.restore()
        del vars(module)["log"]
        if outer is not None:
            vars(module)["log"] = outer


def saves_averaged(trainer: Any, averaged: Callable[[], AbstractContextManager[None]]) -> None:
    """Have checkpoints, also those of weights alone, hold what the model holds inside `averaged`."""
    strategy = trainer.strategy
    vars(strategy).pop("lightning_module_state_dict", None)  # of an earlier `fit`
    plain = strategy.lightning_module_state_dict

    def state_dict() -> dict[str, Any]:
        with averaged():
            found = plain()
            for key, value in found.items():  # in place: PyTorch's own dictionaries carry versions with them
                found[key] = value.clone() if isinstance(value, Tensor) else value
        return found

    strategy.lightning_module_state_dict = state_dict


def second(combined: CombinedLoader) -> CombinedLoader:
    """The same loaders with iterators of their own: a loader with persistent workers has only one."""
    another = copy.copy(combined)
    another.flattened = [copy.copy(loader) for loader in combined.flattened]
    for loader in [another, *another.flattened]:
        if hasattr(loader, "_iterator"):
            loader._iterator = None
    return another


def _to_device(trainer: Any, batch: Any) -> Any:
    batch = trainer.precision_plugin.convert_input(batch)
    batch = trainer.lightning_module._on_before_batch_transfer(batch, dataloader_idx=0)
    return call._call_strategy_hook(trainer, "batch_to_device", batch, dataloader_idx=0)


def mean(losses: list[Tensor], otherwise: Any) -> Any:
    """The mean loss; `otherwise` where `training_step` returned none."""
    if len(losses) > 1:
        return torch.stack(losses).mean()
    return losses[0] if losses else otherwise


def _value(logged: Any) -> Tensor:
    """A logged number; of a metric what it has gathered."""
    return torch.as_tensor(logged.compute() if hasattr(logged, "compute") else logged, dtype=torch.float64).mean()


@contextmanager
def same_randomness(loaders: Iterable[Any]) -> Iterator[None]:
    """Put the global random state and the loaders' own generators back afterwards."""
    states = [(rng, rng.get()) for rng in map(LoaderRng, loaders)]
    try:
        yield
    finally:
        for rng, state in states:
            rng.set(state)
