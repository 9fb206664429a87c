"""What `test_task.py` looks at on two ranks: commits that each is given a part of every batch of. Not a test itself."""

import pickle
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from nets import X, Y, loss_of, shuffled
from ranks import leave, report
from torch import nn
from torch.utils.data import TensorDataset

from autolrs.core.types import encode
from autolrs.pytorch.comm import current
from autolrs.pytorch.task import TorchTask
from autolrs.run.worker import Worker


def plain(examples=48, kind=TorchTask):
    """No random numbers and no statistics of a batch, so that parts add up to the whole; an odd loader if asked for."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))
    doubt = nn.Parameter(torch.zeros(()))  # trained, but not the model's
    optimizer = torch.optim.Adam([*model.parameters(), doubt], lr=0.01)
    loader = shuffled(TensorDataset(X[:examples], Y[:examples]))
    return kind(model, optimizer, loader, lambda batch: loss_of(model, batch) * (-doubt).exp() + doubt)


class Careless(TorchTask):
    def train_step(self, batch):
        loss = loss_of(self.model, batch)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss


def carried_out(job, task):
    task.spread(dist.get_rank(), dist.get_world_size())
    events, end = Worker(task, current()).run(job, lambda data: data)
    weights = torch.cat([p.detach().flatten() for p in task.parameters()]).tolist()
    return {"events": encode(events), "end": None if end is None else end.hex(), "weights": weights}


def refused(job, task):
    try:
        carried_out(job, task)
    except (ValueError, RuntimeError) as error:
        return f"{type(error).__name__}: {error}"


def main(folder):
    dist.init_process_group("gloo")
    job, averaged = (pickle.loads((folder / name).read_bytes()) for name in ("commit", "averaged commit"))
    found = {
        "commit": carried_out(job, plain()),
        "averaged commit": carried_out(averaged, plain()),
        "odd": refused(job, plain(41)),
        "careless": refused(job, plain(kind=Careless)),
    }
    report(folder, dist.get_rank(), found)
    leave(folder, dist.get_world_size())


if __name__ == "__main__":
    main(Path(sys.argv[1]))
