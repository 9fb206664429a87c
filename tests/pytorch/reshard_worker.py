"""What `test_reshard.py` looks at: a run saved by some ranks and resumed by others. Not a test itself."""

import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from fsdp_worker import KINDS, adam, data, message, plain, unsplit
from nets import PAPER, train_step
from ranks import leave, report
from torch.distributed.tensor import DTensor

import autolrs
from autolrs.pytorch.averaging import NAME
from autolrs.pytorch.state import shard_like

PAPER_RUN = {**PAPER, "replay": True}
HORIZON_RUN = {"strategy": "horizon", "total_steps": 60, "lr": (1e-3, 1e-1), "averaging": True, "max_cost": 2.0}

# Name of a run: what it trains, its settings.
RUNS = {
    "fsdp": ("fsdp", PAPER_RUN),
    "tensor parallel": ("tensor parallel", PAPER_RUN),
    "averaged": ("fsdp", HORIZON_RUN),
    "looked": ("fsdp", HORIZON_RUN),  # with a best state
    "between probes": ("fsdp", PAPER_RUN),
    "zero": ("zero", PAPER_RUN),
    "tracked": ("fsdp", PAPER_RUN),
}
WHOLE = {"fsdp": plain, "averaged": plain, "looked": plain, "between probes": plain, "tensor parallel": unsplit}


def whole(tensor):
    return (tensor.full_tensor() if isinstance(tensor, DTensor) else tensor).detach().clone()


def everything(auto):
    """Weights, moments and averages as if there were one rank; collective."""
    parameters = auto.host.parameters()
    average = auto.host.capture()["tracked"].get(NAME, {})
    averages = [
        shard_like(value, parameter)
        for part in ("x", "v")
        for value, parameter in zip(average.get(part, ()), parameters, strict=False)
    ]
    moments = [v for s in auto.optimizer.state.values() for v in s.values() if isinstance(v, torch.Tensor)]
    return [whole(t) for t in (*auto.model.parameters(), *moments, *averages)]


def build(name, sharded):
    kind, settings = RUNS[name]
    make, optimizer_of = KINDS[kind] if sharded else (WHOLE[name], adam)
    model = make()
    return settings, model, optimizer_of(model)


def evaluate_of(name):
    return (lambda: 1.0) if name == "looked" else None


def train(auto, name, rank, size, done):
    for batch in auto.batches(data(RUNS[name][0], rank, size)):
        auto.step(train_step(auto.model, auto.optimizer, batch))
        if done(auto):
            return


def begin(folder, name, rank, size, sharded):
    """Train until a commit is behind us and a durable point written, and keep what the state was there."""
    settings, model, optimizer = build(name, sharded)
    auto = autolrs.AutoLRS(model, optimizer, run_dir=folder / name, evaluate=evaluate_of(name), **settings)
    if name == "tracked":
        auto.track(double=build(name, sharded)[1])
    train(auto, name, rank, size, lambda auto: auto.committed_steps >= 20)
    if name in ("averaged", "looked"):
        auto.extend(90)  # which ends the stretch here
    state = everything(auto) if name != "zero" else []
    if rank == 0:
        torch.save(state, folder / f"{name}.pt")
    if name == "between probes":
        auto.save_point()
    return {"kept": len(auto.session.tokens)}


def go_on(folder, name, rank, size, sharded):
    """Resume, compare all of the state, and train to the end."""
    _, model, optimizer = build(name, sharded)
    track = {"double": build(name, sharded)[1]} if name == "tracked" else None
    auto = autolrs.resume(folder / name, model, optimizer, evaluate=evaluate_of(name), track=track)
    found = everything(auto)
    expected = torch.load(folder / f"{name}.pt")
    same = len(found) == len(expected) > 0 and all(map(torch.equal, expected, found))
    begun = auto.committed_steps
    train(auto, name, rank, size, lambda auto: auto.done)
    return {"same": same, "begun": begun, "tensors": len(found), "committed": auto.committed_steps}


def resumed(folder, name, rank, size, sharded):
    found = {}
    error = message(lambda: found.update(go_on(folder, name, rank, size, sharded)))
    return {**found, "error": error}


def main(act, folder, *names):
    torch.set_num_threads(1)
    together = "RANK" in os.environ  # else a process that knows nothing of ranks, and shards nothing
    if together:
        dist.init_process_group("gloo")
    rank, size = (dist.get_rank(), dist.get_world_size()) if together else (0, 1)
    acts = {"begin": begin, "resume": resumed}
    report(folder, rank, {name: acts[act](folder, name, rank, size, together) for name in names})
    if together:
        leave(folder, size)


if __name__ == "__main__":
    main(sys.argv[2], Path(sys.argv[1]), *sys.argv[3:])
