"""A whole PyTorch training as a host that owns its step and can travel: what a worker of a parallel run drives."""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from autolrs.core.settings import Settings
from autolrs.pytorch.auto import _check
from autolrs.pytorch.averaging import NAME as AVERAGER
from autolrs.pytorch.averaging import Averager
from autolrs.pytorch.batch import clone_batch, part_of_batch, size_of_batch
from autolrs.pytorch.rng import LoaderRng
from autolrs.pytorch.state import TorchHost, read_losses, scalar
from autolrs.pytorch.usual import normalised, proportional_steps, rectified, trained_before, uncorrected, usual_lr
from autolrs.run.replay import Batches


class TorchTask(TorchHost):
    """Model, optimizer and data as a `PortableHost`.

    Args:
        model: as for `AutoLRS`.
        optimizer: as for `AutoLRS`.
        loader: batches; its order must come from torch's random state, from its `generator`, or from a sampler with
            `set_epoch`, or it must have state_dict and load_state_dict: so another worker can go on where this one was.
        loss_fn: `batch -> loss`. A step of another kind: subclass and override `train_step`.
        evaluate: `() -> float`, the validation loss, called in eval mode.
        track: more to be saved, restored and sent along, by name; each has state_dict and load_state_dict.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        loader: Iterable[Any],
        loss_fn: Callable[[Any], Tensor],
        evaluate: Callable[[], Any] | None = None,
        *,
        track: dict[str, Any] | None = None,
    ) -> None:
        _check(model, optimizer, evaluate)
        if not callable(loss_fn):
            raise TypeError(f"`loss_fn` must be a function batch -> loss, got {type(loss_fn).__name__}")
        super().__init__(model, optimizer, evaluate)
        self.tracked.update(track or {})
        self.loader, self.loss_fn = loader, loss_fn
        self.validation = evaluate is not None
        self.base_lr = float(optimizer.param_groups[0]["lr"])
        self.usual_lr = usual_lr(model, optimizer)
        self.proportional_steps = proportional_steps(optimizer)
        self.rectified, self.uncorrected = rectified(optimizer), uncorrected(optimizer)
        self.normalised = normalised(model)
        self.trained_before = trained_before(model)
        self.stream = self._batches(1 << 30, lambda message: None)
        self.averager: Averager | None = None
        self._rank, self._ranks = 0, 1
        self._loss: _Loss | None = None  # once it trains with others

    def train_step(self, batch: Any) -> Tensor | float:
        """One optimizer step on `batch`; the loss before it."""
        loss = self.loss_fn(batch)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss

    # One of several ranks

    def check_split(self, ranks: int) -> None:
        """Raise if the loader tells beforehand that its batches cannot be split; else the first that cannot raises."""
        size, drop_last = getattr(self.loader, "batch_size", None), getattr(self.loader, "drop_last", False)
        if not isinstance(size, int):
            return
        if size % ranks:
            raise ValueError(f"the loader's batch size must be a multiple of the {ranks} workers, got {size}")
        try:
            examples = len(self.loader.sampler)  # type: ignore[attr-defined]
        except (AttributeError, TypeError):  # a stream
            return
        if examples % size % ranks and not drop_last:
            raise ValueError(
                f"the last batch of an epoch, {examples % size} examples, cannot be split equally on {ranks} workers: "
                "give the loader `drop_last=True`"
            )

    def spread(self, rank: int, ranks: int, wrap: Callable[[nn.Module], nn.Module] = DistributedDataParallel) -> None:
        """Train with others from now on: each on its part of every batch, with the mean of all gradients.

        `wrap` makes a module whose gradients are averaged. DDP works on a module's `forward`, and `loss_fn` is a
        function that knows the bare model: so the loss itself becomes the module.
        """
        loose = self._loose_parameters()
        if not all(isinstance(parameter, nn.Parameter) for parameter in loose):
            raise TypeError("what the optimizer trains outside of the model must be of type `nn.Parameter`")
        self._loss = _Loss(self.model, loose, self.loss_fn)
        self.loss_fn = wrap(self._loss)
        self._rank, self._ranks = rank, ranks

    def split(self, batch: Any, rank: int, ranks: int) -> Any:
        """This rank's part of a batch; override it for batches that are not trees of tensors."""
        return part_of_batch(batch, rank, ranks)

    # PortableHost

    def prepare(self, settings: Settings, note: Callable[[str], None]) -> None:
        """Cache as many batches for replay as the settings allow, and average the weights if they say so."""
        self.stream = self._batches(settings.replay_bytes, note)
        if settings.averaging and "train_mode" not in self.optimizer.param_groups[0]:  # Schedule-Free averages itself
            self._average()

    def step(self) -> Any:
        """One optimizer step on the next batch; its loss, unread where it is on a device."""
        batch = self.stream.next()
        if self._loss is None:
            return scalar(self.train_step(batch))
        loss = scalar(self.train_step(self.split(batch, self._rank, self._ranks)))
        if not self._loss.used:
            raise RuntimeError("`train_step` must compute its loss with `self.loss_fn`: its gradients are averaged")
        return loss

    def read(self, losses: Sequence[Any]) -> list[float]:
        """Losses as floats, with one transfer."""
        return read_losses(losses)

    def dumps(self) -> bytes:
        """The live state, the random state and the data position, to be loaded with `weights_only`."""
        buffer = io.BytesIO()
        state = {
            "autolrs_task": 1,
            "host": self.copy_of_live(),
            "ratios": self.ratios,
            "feed": self.stream.state_dict(),
        }
        torch.save(state, buffer)
        return buffer.getvalue()

    def loads(self, data: bytes) -> None:
        """Stand where `dumps` was called. Only tensors and plain values are loaded, never code."""
        try:
            state = torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
        except (RuntimeError, EOFError, pickle.UnpicklingError, ValueError) as error:
            raise ValueError(f"not a training state of autolrs: {error}") from error
        if not isinstance(state, dict) or state.get("autolrs_task") != 1:
            raise ValueError("not a training state of autolrs, or of a newer one")
        if AVERAGER in state["host"]["tracked"]:  # also where nobody has prepared this, and the run is over
            self._average()
        self.check(state["host"])
        self.ratios = list(state["ratios"])
        self.stream.load_state_dict(state["feed"])
        self.load(state["host"])  # after the data: reading forward draws random numbers

    def _average(self) -> None:
        """From now on; its state is part of the training's, so that probes and failed stretches put it back."""
        if self.averager is None:
            self.averager = Averager(self.model, self.optimizer)
            self.tracked[AVERAGER], self.around_evaluate = self.averager, self.averager.averaged

    def _batches(self, limit: int, note: Callable[[str], None]) -> Batches:
        # Without `replay` nobody marks a position, and nothing is cached.
        return Batches(
            self.loader,
            LoaderRng(self.loader),
            replay=True,
            limit=limit,
            size=size_of_batch,
            clone=clone_batch,
            note=note,
        )


class _Loss(nn.Module):
    """A loss function as a module that holds all that is trained."""

    def __init__(self, model: nn.Module, loose: list[Tensor], loss_fn: Callable[[Any], Tensor]) -> None:
        super().__init__()
        self.model, self.loose, self.used = model, nn.ParameterList(loose), False
        self._loss_fn = [loss_fn]  # in a list: one that is a module itself would be registered a second time

    def forward(self, batch: Any) -> Tensor:
        """The loss."""
        self.used = True
        return self._loss_fn[0](batch)
