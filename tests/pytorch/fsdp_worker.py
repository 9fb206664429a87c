"""What `test_fsdp.py` looks at, on every rank: sharded and tensor-parallel models, a sharded optimizer."""

import os
import shutil
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from nets import PAPER, X, Y, loss_of, train_step
from ranks import leave, report
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

import autolrs
from autolrs.core.types import encode
from autolrs.pytorch.state import TorchHost
from autolrs.run.comm import average

SETTINGS = {**PAPER, "replay": True, "keep_winner": True, "eval_every": 2, "keep_best": True}


def plain():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 3))


def sharded():
    model = plain()
    for layer in (model[0], model[3]):
        fully_shard(layer)
    return fully_shard(model)


def unsplit():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))


def tensor_parallel():
    model = unsplit()
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    return parallelize_module(model, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})


def adam(model):
    return torch.optim.AdamW(model.parameters(), lr=0.01)


def zero(model):
    return ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, lr=0.01)


KINDS = {
    "fsdp": (sharded, adam),
    "tensor parallel": (tensor_parallel, adam),
    "zero": (lambda: DistributedDataParallel(plain()), zero),
}


def local(tensor):
    tensor = tensor.detach()
    return (tensor.to_local() if isinstance(tensor, DTensor) else tensor).clone()


def weights(model):
    for module in model.modules():
        if hasattr(module, "reshard"):
            module.reshard()
    return [local(t) for t in (*model.parameters(), *model.buffers())]


def moments(optimizer):
    inner = getattr(optimizer, "optim", optimizer)
    return [local(v) for state in inner.state.values() for v in state.values()]


def same(a, b):
    return len(a) == len(b) and all(map(torch.equal, a, b))


def data(kind, rank, size):
    """Contiguous, as a DataLoader's batches are: kernels round differently on strided ones."""
    if kind == "tensor parallel":
        rank, size = 0, 1
    return [(X[i + rank : i + 8 : size].contiguous(), Y[i + rank : i + 8 : size]) for i in range(0, 48, 8)]


def snapshots(kind, rank, size):
    """Restored twice, to before the first step and to after some: the same losses and the same bits."""
    make, optimizer_of = KINDS[kind]
    model = make()
    optimizer = optimizer_of(model)
    host = TorchHost(model, optimizer, lambda: loss_of(model, batches[0]))
    batches = data(kind, rank, size)

    def steps(count):
        return [float(train_step(model, optimizer, batches[i % 6]).detach()) for i in range(count)]

    found = []
    for warm in (0, 3):
        steps(warm)
        host.evaluate()
        token = host.snapshot()
        before = weights(model), moments(optimizer)
        losses, after = steps(4), (weights(model), moments(optimizer))
        for _ in range(2):
            host.evaluate()
            host.restore(token)
            found.append(same(before[0], weights(model)) and same(before[1], moments(optimizer)))
            found.append(steps(4) == losses)
            found.append(same(after[0], weights(model)) and same(after[1], moments(optimizer)))
        host.restore(token)
    saved = host.dump(token)
    held = sum(t.numel() for t in _tensors({"model": saved["model"], "state": saved["optimizer"]["state"]}))
    return {"exact": found, "held": held, "whole": 3 * sum(p.numel() for p in model.parameters())}


def _tensors(tree):
    if isinstance(tree, torch.Tensor):
        return [tree]
    return [t for value in tree.values() for t in _tensors(value)] if isinstance(tree, dict) else []


def lr_of(optimizer):
    return getattr(optimizer, "optim", optimizer).param_groups[0]["lr"]


def whole_run(kind, rank, size, folder, stop=None):
    """A run with durable points; stopped, resumed from new objects, and gone on with."""
    make, optimizer_of = KINDS[kind]
    model = make()
    optimizer = optimizer_of(model)

    @torch.no_grad()
    def evaluate():
        return loss_of(model, data(kind, rank, size)[0])

    auto = autolrs.resume(folder, model, optimizer, missing_ok=True, evaluate=evaluate, **SETTINGS)
    begun, reached = auto.raw_steps, []
    for batch in auto.batches(data(kind, rank, size)):
        lr = auto.lr
        loss = train_step(model, optimizer, batch)
        reached.append(lr_of(optimizer) == lr)
        auto.step(loss)
        if auto.raw_steps == stop:
            break
    types = sorted(
        {type(v).__name__ for s in getattr(optimizer, "optim", optimizer).state.values() for v in s.values()}
    )
    trained = weights(model)
    found = {"begun": begun, "lr": all(reached), "types": types, "best": auto.best and encode(auto.best)}
    if auto.done:
        auto.restore_best()
        found["restored"] = average(auto.comm, auto.host.evaluate, "here") == auto.best.loss
    return trained, auto.schedule.to_json(), found


def bare(kind, rank, size, schedule):
    make, optimizer_of = KINDS[kind]
    model = make()
    optimizer = optimizer_of(model)
    left = schedule.total_steps
    for step in range(left):
        for group in optimizer.param_groups:
            group["lr"] = schedule.lr_at(step)
        train_step(model, optimizer, data(kind, rank, size)[step % 6])
    return weights(model)


def runs(kind, rank, size, folder):
    folder = folder / kind.replace(" ", "-")
    expected, schedule, first = whole_run(kind, rank, size, folder / "whole")
    whole_run(kind, rank, size, folder / "stopped", stop=80)
    dist.barrier()
    names = sorted(path.name for path in (folder / "stopped").iterdir())
    again, schedule_again, second = whole_run(kind, rank, size, folder / "stopped")
    return {
        "first": first,
        "second": second,
        "names": names,
        "same bits": same(expected, again),
        "same schedule": schedule == schedule_again,
        "bare": same(expected, bare(kind, rank, size, autolrs.Schedule.from_json(schedule))),
    }


def message(act):
    try:
        act()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "no error"


def faults(rank, size, folder):
    """Damaged and malicious shards fall back; another model is refused by name."""
    found = {}
    for name, harm in (("cut", cut), ("malicious", malicious)):
        run = folder / name
        if rank == 0:
            shutil.copytree(folder / "fsdp" / "whole", run)
            harm(newest(run))
        dist.barrier()
        model = sharded()
        optimizer = adam(model)
        found[name] = message(lambda: resumed(run, model, optimizer, found))  # noqa: B023 - called at once
    found["executed"] = (folder / "executed").exists()

    def other():
        torch.manual_seed(0)
        model = fully_shard(nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4), nn.Tanh(), nn.Linear(4, 3)))
        resumed(folder / "fsdp" / "whole", model, adam(model), found)

    found["another model"] = message(other)
    return found


def resumed(run, model, optimizer, found):
    auto = autolrs.resume(run, model, optimizer, evaluate=lambda: 1.0)
    found[f"{run.name} steps"] = auto.committed_steps


def newest(run):
    number = torch.load(run / "checkpoint.pt", weights_only=True)["id"]
    return run / f"checkpoint.{number}.shards"


def cut(shards):
    for path in shards.glob("*.distcp"):
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def malicious(shards):
    import pickle

    trace = shards.parents[1] / "executed"

    class Bad:
        def __reduce__(self):
            return os.mkdir, (str(trace),)

    (shards / ".metadata").write_bytes(pickle.dumps(Bad()))


def main(folder):
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    found = {kind: {"snapshots": snapshots(kind, rank, size), "runs": runs(kind, rank, size, folder)} for kind in KINDS}
    found["faults"] = faults(rank, size, folder)
    report(folder, rank, found)
    leave(folder, size)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
