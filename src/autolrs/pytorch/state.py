"""A PyTorch training as a `Host`: what a probe touches is saved here, in CPU buffers, and put back in place.

Saved: parameters, all buffers (BatchNorm, non-persistent ones), the optimizer's state and groups, tracked objects, the
global random state. Restoring copies into the live tensors, so that addresses stay for compiled and captured code;
state that did not exist at the snapshot is removed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from autolrs.pytorch.rng import GlobalRng
from autolrs.run.host import Token
from autolrs.run.snapshots import Slots, TreeCopier

_HOME = "_autolrs_home"  # device a buffer's original lives on


class TorchHost:
    """Snapshots, restores and sets the LR of one model and optimizer."""

    def __init__(
        self, model: nn.Module, optimizer: torch.optim.Optimizer, evaluate: Callable[[], Any] | None = None
    ) -> None:
        self.model, self.optimizer, self._evaluate = model, optimizer, evaluate
        self.around_evaluate: Callable[[], AbstractContextManager[None]] = nullcontext  # shows the averaged weights
        # Paths are those of the model inside DDP: a run may go on without it, or with it.
        self._body = unwrapped(model)
        self.tracked: dict[str, Any] = {}
        self.rng = GlobalRng()
        self.ratios = _ratios(optimizer)
        self._copier = TreeCopier(Tensor, _buffer, _fits, _copy_all)
        self._slots = Slots(self._copier)

    # Host

    def snapshot(self) -> Token:
        """Copy the live state into a free (or new) set of buffers."""
        return self._slots.save(self.capture())

    def restore(self, token: Token) -> None:
        """Copy a snapshot back into the live state."""
        self.load(self._slots[token])

    def release(self, token: Token) -> None:
        """Free a snapshot's buffers for the next one."""
        self._slots.release(token)

    def set_lr(self, lr: float) -> None:
        """Set the first group's LR; the others keep their ratio to it. A Tensor LR is filled in place."""
        groups = self.optimizer.param_groups
        if len(groups) > len(self.ratios):  # groups added since: their LR is relative to the present one
            first = float(groups[0]["lr"])
            self.ratios += [float(group["lr"]) / first if first else 1.0 for group in groups[len(self.ratios) :]]
        for group, ratio in zip(groups, self.ratios, strict=True):
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(lr * ratio)
            else:
                group["lr"] = lr * ratio

    def lr_slot(self) -> dict[str, Any] | None:
        """The one parameter group, if its LR is a plain number."""
        groups = self.optimizer.param_groups
        return groups[0] if len(groups) == 1 and not isinstance(groups[0]["lr"], Tensor) else None

    def foreign_lr(self, lr: float) -> float | None:
        """The optimizer's LR if it is not `lr`: somebody else changed it. A Tensor LR is not read: it may be away."""
        found = self.optimizer.param_groups[0]["lr"]
        return None if isinstance(found, Tensor) or found == lr else float(found)

    def evaluate(self, *, raw: bool = False) -> float:
        """The user's validation loss in eval mode; modes, buffers and random state are put back whatever happens.

        It sees the averaged weights if there are any; with `raw` those that are being trained.
        """
        assert self._evaluate is not None
        modes = [(module, module.training) for module in self.model.modules()]
        rng = self.rng.get()
        # A forward pass of DDP gives every rank the buffers of rank 0, and without gradients keeps the next from it.
        buffers = [(local(buffer), local(buffer).clone()) for buffer in self.model.buffers()]
        ddp = [m for m in self.model.modules() if isinstance(m, nn.parallel.DistributedDataParallel)]
        syncs = [(module, module.require_forward_param_sync) for module in ddp]
        swapped = self._swap_weights()
        self.model.eval()
        try:
            with nullcontext() if raw else self.around_evaluate():
                return number(self._evaluate(), "the value of `evaluate`")
        finally:
            if swapped:
                self.optimizer.train()  # type: ignore[attr-defined]
                for parameter, weights in swapped:  # swapping there and back is not exact
                    parameter.data.copy_(weights)
            for module, training in modes:
                module.training = training
            for buffer, before in buffers:
                if not torch.equal(buffer, before):
                    buffer.copy_(before)
            for wrapper, sync in syncs:
                wrapper.require_forward_param_sync = sync
            self.rng.set(rng)

    # State as one tree

    def capture(self) -> dict[str, Any]:
        """The live state; its tensors are the live ones."""
        tracked: dict[str, Any] = {}
        for name, value in self.tracked.items():
            if isinstance(value, nn.Module):
                tracked[name] = _tensors(value)
            elif isinstance(value, torch.optim.Optimizer):
                tracked[name] = _optimizer_tree(value)
            else:
                tracked[name] = value.state_dict()
        return {
            "model": _tensors(self._body),
            "loose": self._loose_parameters(),
            "optimizer": _optimizer_tree(self.optimizer),
            "tracked": tracked,
            "rng": self.rng.get(),
        }

    @torch.no_grad()
    def load(self, tree: dict[str, Any]) -> None:
        """Put a captured state into the live one, in place wherever shapes agree."""
        live = self.capture()
        # Objects of unknown kind take their state by load_state_dict and may keep what they are given: they get copies.
        strange = {
            name: self._copier.copy(tree["tracked"][name], allocate=_at_home)
            for name, value in self.tracked.items()
            if not isinstance(value, (nn.Module, torch.optim.Optimizer))
        }
        known = {name: value for name, value in tree["tracked"].items() if name not in strange and name in self.tracked}
        wanted = {**{part: tree[part] for part in ("model", "loose", "optimizer")}, "tracked": known}
        put = self._copier.copy(wanted, live, allocate=_at_home)
        _put_tensors(self._body, put["model"])
        _put_optimizer(self.optimizer, put["optimizer"])
        for name, value in self.tracked.items():
            if name in strange:
                value.load_state_dict(strange[name])
            elif isinstance(value, nn.Module):
                _put_tensors(value, put["tracked"][name])
            else:
                _put_optimizer(value, put["tracked"][name])
        self.rng.set(tree["rng"])

    def dump(self, token: Token) -> dict[str, Any]:
        """A copy of a snapshot for a checkpoint."""
        return self._copier.copy(self._slots[token])

    def put(self, token: Token, tree: dict[str, Any]) -> None:
        """A snapshot from a checkpoint, under its old token."""
        self._slots.put(token, tree)

    def forget_snapshots(self) -> None:
        """Drop all snapshots."""
        self._slots.clear()

    def copy_of_live(self, *parts: str) -> dict[str, Any]:
        """A copy of the live state for a checkpoint, or of these parts of it."""
        live = self.capture()
        return self._copier.copy({part: live[part] for part in parts or live})

    def unchanged(self, token: Token) -> bool:
        """Whether parameters and optimizer state equal a snapshot's; LRs and buffers, which change anyway, aside."""
        parameters = [path for path, tensor in _tensors(self._body).items() if isinstance(tensor, nn.Parameter)]

        def trained(tree: dict[str, Any]) -> Any:
            optimizer = tree["optimizer"]
            groups = [{key: value for key, value in group.items() if key != "lr"} for group in optimizer["groups"]]
            return [tree["model"][path] for path in parameters], tree["loose"], optimizer["state"], groups

        return _same(trained(self._slots[token]), trained(self.capture()))

    def check(self, tree: dict[str, Any]) -> None:
        """Raise a ValueError that names the first difference between a checkpoint and what is here."""
        live, saved = _tensors(self._body), tree["model"]
        for path in [*live, *saved]:
            if path not in live or path not in saved:
                where = "the checkpoint" if path in saved else "the model"
                raise ValueError(f"the checkpoint is of another model: only {where} has {path!r}")
            here, there = live[path], saved[path]
            if here is not None:
                here = local(here)
            if here is not None and there is not None and (here.shape, here.dtype) != (there.shape, there.dtype):
                raise ValueError(
                    f"the checkpoint is of another model: {path!r} is {tuple(there.shape)} of {there.dtype} there "
                    f"and {tuple(here.shape)} of {here.dtype} here"
                )
        kind, groups = tree["optimizer"]["kind"], len(tree["optimizer"]["groups"])
        if kind != type(self.optimizer).__name__ or groups != len(self.optimizer.param_groups):
            raise ValueError(
                f"the checkpoint is of another optimizer: {kind} with {groups} groups there, "
                f"{type(self.optimizer).__name__} with {len(self.optimizer.param_groups)} here"
            )
        if tree["tracked"].keys() != self.tracked.keys():
            raise ValueError(
                "the checkpoint holds other tracked objects: "
                f"{sorted(tree['tracked'])} there, {sorted(self.tracked)} here"
            )

    def parameters(self) -> list[Tensor]:
        """The parameters whose state the optimizer keeps here, in the order of its state's numbers."""
        return _parameters(_keeper(self.optimizer))

    def _swap_weights(self) -> list[tuple[Tensor, Tensor]]:
        """Have an optimizer with modes (Schedule-Free) show the weights that it means; returns those it trains."""
        if not (hasattr(self.optimizer, "eval") and self.optimizer.param_groups[0].get("train_mode")):
            return []
        weights = [(parameter, parameter.detach().clone()) for parameter in _parameters(self.optimizer)]
        self.optimizer.eval()
        return weights

    def _loose_parameters(self) -> list[Tensor]:
        """Parameters that the optimizer trains and the model does not hold (a learned loss weight, say)."""
        held = {id(parameter) for parameter in self.model.parameters()}
        return [p for p in _parameters(self.optimizer) if id(p) not in held]


def read_losses(losses: Sequence[Any]) -> list[float]:
    """Losses as floats, with one transfer for those on a device. A pair is a loss and its device's flag 'skipped'."""
    flagged = any(isinstance(loss, tuple) for loss in losses)
    if not flagged:
        return _floats(losses)
    pairs = [loss if isinstance(loss, tuple) else (loss, 0.0) for loss in losses]
    values = _floats([value for pair in pairs for value in pair])
    return [loss for loss, skipped in zip(values[::2], values[1::2], strict=True) if not skipped]


def _floats(values: Sequence[Any]) -> list[float]:
    away = [value for value in values if isinstance(value, Tensor) and not value.is_cpu]
    if away:
        read = iter(torch.stack([value.reshape(()).double() for value in away]).tolist())
        values = [next(read) if isinstance(value, Tensor) and not value.is_cpu else value for value in values]
    return [value if type(value) is float else number(value, "`loss`") for value in values]


def scalar(loss: Any) -> Any:
    """A training loss as a float, or, so as not to wait for a device, as a detached tensor with one value."""
    if isinstance(loss, Tensor) and not loss.is_cpu and loss.numel() == 1:
        return loss.detach().reshape(())
    return number(loss, "`loss`")


def number(value: Any, what: str) -> float:
    """`value` as a float, or a TypeError that says what it was."""
    try:
        return float(value.detach() if isinstance(value, Tensor) else value)
    except (TypeError, ValueError, RuntimeError):
        shape = f" of shape {tuple(value.shape)}" if isinstance(value, Tensor) else ""
        raise TypeError(
            f"{what} must be a number or a Tensor with one value, got {type(value).__name__}{shape}"
        ) from None


def _ratios(optimizer: torch.optim.Optimizer) -> list[float]:
    first = float(optimizer.param_groups[0]["lr"])
    if not first > 0:
        raise ValueError(
            f"the first parameter group's `lr` must be above 0: the others are kept in ratio to it, got {first}"
        )
    return [float(group["lr"]) / first for group in optimizer.param_groups]


def _parameters(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def unwrapped(model: nn.Module) -> nn.Module:
    """The model inside DDP, or the model itself."""
    inner: nn.Module = model.module if isinstance(model, nn.parallel.DistributedDataParallel) else model
    return inner


def _tensors(root: nn.Module) -> dict[str, Tensor | None]:
    """Every parameter and buffer of `root` by path; a place that may hold one and does not is None."""
    reshard(root)
    return {
        f"{prefix}.{key}" if prefix else key: tensor
        for prefix, module in root.named_modules()
        for holder in (module._parameters, module._buffers)
        for key, tensor in holder.items()
    }


def _put_tensors(root: nn.Module, put: dict[str, Tensor | None]) -> None:
    """Put the restored buffers where they stood; those that were written in place stand there already."""
    for prefix, module in root.named_modules():
        for key, tensor in list(module._buffers.items()):
            path = f"{prefix}.{key}" if prefix else key
            if path not in put:
                del module._buffers[key]
            elif put[path] is not tensor:
                module._buffers[key] = put[path]


def reshard(root: nn.Module) -> None:
    """Put FSDP's parameters back into shards: a forward pass without a backward one leaves some of them whole."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        from torch.distributed.fsdp import FSDPModule

        for module in root.modules():
            if isinstance(module, FSDPModule):
                module.reshard()


def _keeper(optimizer: torch.optim.Optimizer) -> torch.optim.Optimizer:
    """The optimizer that keeps the state: of a ZeroRedundancyOptimizer the one inside, for this rank's parameters."""
    if type(optimizer).__name__ != "ZeroRedundancyOptimizer":
        return optimizer
    inner: torch.optim.Optimizer = optimizer.optim  # type: ignore[attr-defined]
    return inner


def _optimizer_tree(optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    keeper = _keeper(optimizer)
    index = {id(parameter): i for i, parameter in enumerate(_parameters(keeper))}
    # Like torch's own state dicts: by a parameter's number; what is kept under any other key stays under it.
    state = {index.get(id(key), key): values for key, values in keeper.state.items()}
    groups = [{key: value for key, value in group.items() if key != "params"} for group in optimizer.param_groups]
    return {"kind": type(optimizer).__name__, "state": state, "groups": groups}


def _put_optimizer(optimizer: torch.optim.Optimizer, tree: dict[str, Any]) -> None:
    keeper = _keeper(optimizer)
    parameters = _parameters(keeper)
    keeper.state.clear()
    for i, state in tree["state"].items():
        if isinstance(i, int) and isinstance(state, dict):
            state = {name: shard_like(value, parameters[i]) for name, value in state.items()}
        keeper.state[parameters[i] if isinstance(i, int) else i] = state
    for group, saved in zip(optimizer.param_groups, tree["groups"], strict=False):
        for key in [key for key in group if key != "params" and key not in saved]:
            del group[key]
        group.update(saved)


def is_sharded(tensor: Any) -> bool:
    """Whether this is a DTensor, of which a rank holds a shard."""
    return hasattr(tensor, "to_local")


def local(tensor: Tensor) -> Tensor:
    """The tensor itself, or this rank's shard of a distributed one."""
    tensor = tensor.detach()
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


def shard_like(value: Any, parameter: Tensor) -> Any:
    """A restored tensor that has the shape of a sharded parameter's shard, as a shard; anything else as it is."""
    if not is_sharded(parameter) or not isinstance(value, Tensor) or is_sharded(value) or not value.dim():
        return value
    if value.shape != local(parameter).shape:
        return value
    from torch.distributed.tensor import DTensor

    whole: Any = parameter
    return DTensor.from_local(
        value, whole.device_mesh, whole.placements, run_check=False, shape=whole.shape, stride=whole.stride()
    )


def _buffer(source: Tensor) -> Tensor:
    """A CPU buffer for a live tensor, pinned when it lives on an accelerator so that copies do not block."""
    shard = local(source)
    buffer = torch.empty_like(shard, device="cpu", pin_memory=shard.is_cuda, requires_grad=False)
    setattr(buffer, _HOME, getattr(source, _HOME, str(shard.device)))
    return buffer


def _at_home(source: Tensor) -> Tensor:
    """A new live tensor for a buffer whose original is gone, on the device that one lived on."""
    return torch.empty_like(source, device=getattr(source, _HOME, source.device))


def _fits(target: Tensor, source: Tensor) -> bool:
    target, source = local(target), local(source)
    same_kind = target.shape == source.shape and target.dtype == source.dtype and target.layout == source.layout
    return same_kind and not _expanded(target)


def _expanded(tensor: Tensor) -> bool:
    """Whether several elements share one place in memory (`Tensor.expand`), so that it cannot be written into."""
    return tensor.layout == torch.strided and any(
        stride == 0 and size > 1 for stride, size in zip(tensor.stride(), tensor.shape, strict=True)
    )


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        a, b = local(a), local(b)
        return a.shape == b.shape and torch.equal(a.to(b.device), b)
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(_same(value, b[key]) for key, value in a.items())
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return len(a) == len(b) and all(map(_same, a, b))
    return bool(a == b)


@torch.no_grad()
def _copy_all(targets: list[Tensor], sources: list[Tensor]) -> None:
    if targets:
        # Ordered on the current stream with the steps before and after, so non-blocking copies need no synchronisation.
        torch._foreach_copy_([local(t) for t in targets], [local(s) for s in sources], non_blocking=True)
