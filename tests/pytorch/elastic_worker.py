"""A script as users write it: unchanged on its first start and on every restart. Ends itself where it is told to."""

import os
import signal
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from nets import X, Y, net, train_step
from ranks import leave, report
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import autolrs
from autolrs.pytorch import checkpoint

SETTINGS = {"total_steps": 60, "stage_steps": 20, "max_stage_steps": 20, "probe_fraction": 0.25, "n_probes": 3}
SETTINGS |= {"lr": (1e-3, 1e-1), "strategy": "paper", "replay": True}


def moment(name, rank):
    """When this attempt ends: `kill:7` or `term:30` at a raw step, `save:2` in the middle of the second checkpoint."""
    how, _, number = name.partition(":")
    if how == "save" and rank == 0:
        count, make_it_count = [0], checkpoint._count

        def die(*paths):
            count[0] += 1
            if count[0] == int(number):
                os.kill(os.getpid(), signal.SIGKILL)
            return make_it_count(*paths)

        checkpoint._count = die
    return how, int(number or -1)


def run(folder, rank, how="", at=-1, stop=None):
    model = net()
    if dist.is_initialized():
        model = DistributedDataParallel(model)
    torch.manual_seed(100 + rank)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    data = TensorDataset(X, Y)
    ranks = dist.get_world_size() if dist.is_initialized() else 1
    sampler = DistributedSampler(data, num_replicas=ranks, rank=rank, seed=3)
    auto = autolrs.resume(folder, model, optimizer, missing_ok=True, **SETTINGS)
    begun = auto.raw_steps
    for batch in auto.batches(DataLoader(data, batch_size=4, sampler=sampler)):
        loss = train_step(model, optimizer, batch)
        if how == "kill" and rank == 1 and auto.raw_steps == at:
            os.kill(os.getpid(), signal.SIGKILL)
        if how == "term" and auto.raw_steps == at + 2 * rank:  # ranks hear at different steps
            os.kill(os.getpid(), signal.SIGTERM)
        auto.step(loss)
        if auto.raw_steps == stop:
            break
    weights = [t.flatten().tolist() for t in getattr(model, "module", model).state_dict().values()]
    return {"begun": begun, "schedule": auto.schedule.to_json(), "weights": weights}


def main(folder, *moments):
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, attempt = dist.get_rank(), int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    ends = moment(moments[attempt], rank) if attempt < len(moments) else ()
    found = {path.name: run(path, rank, *ends) for path in sorted(folder.glob("run*"))}
    report(folder, rank, {"attempt": attempt, **found})
    leave(folder, dist.get_world_size())


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
