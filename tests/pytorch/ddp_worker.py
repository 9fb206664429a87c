"""What `test_ddp.py` looks at, on every rank: one process group, many small runs. Not a test itself."""

import math
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from nets import PAPER, X, Y, loss_of, net, train, train_step
from ranks import leave, report
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler, TensorDataset

import autolrs
from autolrs.core.types import encode
from autolrs.pytorch.usual import usual_lr
from autolrs.run import journal

HORIZON = {"total_steps": 400, "lr": (1e-3, 1.0), "max_cost": 1.6}


class Numbered(Dataset):
    """Samples that say which they are."""

    def __len__(self):
        return len(X)

    def __getitem__(self, i):
        return X[i], Y[i], i


def plain():
    """No random numbers and no statistics of a batch, so that shards add up to the whole."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))


def adam(model, lr=0.01):
    return torch.optim.Adam(model.parameters(), lr=lr)


def shards(rank, size):
    whole = [(X[i : i + 8], Y[i : i + 8]) for i in range(0, 48, 8)]
    return [(x[rank::size], y[rank::size]) for x, y in whole]


def whole_run(rank, size, wrap, run_dir=None, **settings):
    model = wrap(plain())
    optimizer = adam(model)
    values = {}
    if settings.pop("evaluate", False):
        values["evaluate"] = lambda: loss_of(model, (X[rank::size], Y[rank::size]))
    auto = autolrs.AutoLRS(model, optimizer, run_dir=run_dir, **{**settings, **values})
    infos = train(auto, model, optimizer, shards(rank, size))
    found = {
        "lrs": [info.lr for info in infos],
        "exploring": [info.exploring for info in infos],
        "schedule": auto.schedule.to_json(),
        "weights": torch.cat([p.detach().flatten() for p in model.parameters()]).tolist(),
        "state": encode(auto.session.state.to_json()),
    }
    if auto.settings.keep_best:
        auto.restore_best()
        found["best weights"] = torch.cat([p.detach().flatten() for p in model.parameters()]).tolist()
        found["own loss"] = float(loss_of(model, (X[rank::size], Y[rank::size])).detach())
    return found


RUNS = {
    "paper": {**PAPER, "replay": True, "keep_winner": True, "n_probes": 4},
    "range test and validation": {**PAPER, "lr": "auto", "range_steps": 30, "eval_every": 2, "evaluate": True},
    "horizon": {**HORIZON, "evaluate": True, "averaging": True},
    "keep best": {**HORIZON, "evaluate": True, "keep_best": True, "max_cost": 2.0},
}


def schedules(rank, size, folder):
    return {
        name: whole_run(rank, size, DistributedDataParallel, folder / name.replace(" ", "-"), **settings)
        for name, settings in RUNS.items()
    }


def loader(dataset, shuffle=True):
    return DataLoader(dataset, batch_size=4, sampler=DistributedSampler(dataset, shuffle=shuffle, seed=3))


def probes_leave_no_trace(rank, size, folder):
    """Dropout and BatchNorm, a seed per rank: the run is that of a bare loop with the schedule that was found."""

    def make():
        model = DistributedDataParallel(net())
        torch.manual_seed(100 + rank)
        return model, adam(model), loader(TensorDataset(X, Y))

    model, optimizer, data = make()
    auto = autolrs.AutoLRS(model, optimizer, **{**PAPER, "replay": True})
    train(auto, model, optimizer, data)
    found = [t.clone() for t in model.state_dict().values()]
    model, optimizer, data = make()
    scheduler = auto.schedule.to_torch(optimizer)
    left, epoch = auto.schedule.total_steps, 0
    while left:
        data.sampler.set_epoch(epoch)
        epoch += 1
        for batch in data:
            if left:
                train_step(model, optimizer, batch)
                scheduler.step()
                left -= 1
    return [bool(torch.equal(a, b)) for a, b in zip(found, model.state_dict().values(), strict=True)]


def shards_seen(rank, size, folder):
    """Which samples each step saw, and which the sampler gives to this rank in each epoch."""
    data = loader(Numbered())
    model = DistributedDataParallel(plain())
    optimizer = adam(model)
    auto = autolrs.AutoLRS(model, optimizer, **{**PAPER, "total_steps": 20, "max_stage_steps": 20, "replay": True})
    seen = []
    for x, y, numbers in auto.batches(data):
        exploring = auto.exploring
        auto.step(train_step(model, optimizer, (x, y)))
        seen.append((exploring, numbers.tolist()))
    expected = []
    for epoch in range(5):
        data.sampler.set_epoch(epoch)
        expected += [numbers.tolist() for _, _, numbers in data]
    return {"seen": seen, "expected": expected}


def bad_loss_on_one_rank(rank, size, folder):
    model = DistributedDataParallel(plain())
    optimizer = adam(model)
    auto = autolrs.AutoLRS(model, optimizer, run_dir=folder / "bad", **HORIZON)
    events = []
    auto.on_event(events.append)
    bad = None
    for batch in auto.batches(shards(rank, size)):
        loss = train_step(model, optimizer, batch)
        if bad is None and auto.committed_steps >= 50:
            bad = auto.committed_steps
            loss = loss * math.nan if rank == 1 else loss
        auto.step(loss)
    return {"failed": [encode(e) for e in events if type(e).__name__ == "Failed"], "schedule": auto.schedule.to_json()}


def usual_of_parts(rank, size, folder):
    """Ranks that hold parts of a model of different width; what is known there, and what the run goes by."""
    part = torch.nn.Linear(6 * 4**rank, 3)
    optimizer = torch.optim.Adam(part.parameters())
    return {"own": usual_lr(part, optimizer), "run": autolrs.AutoLRS(part, optimizer, **HORIZON).settings.usual_lr}


def message(act):
    try:
        act()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "no error"


def refusals(rank, size, folder):
    def auto(**settings):
        model = DistributedDataParallel(plain())
        return autolrs.AutoLRS(model, adam(model), **{**PAPER, **settings})

    def broken_evaluate():
        def evaluate():
            if rank == 1:
                raise OSError("no such file")
            return 1.0

        model = DistributedDataParallel(plain())
        optimizer = adam(model)
        values = {**PAPER, "stage_steps": 20, "max_stage_steps": 20, "eval_every": 2}
        train(autolrs.AutoLRS(model, optimizer, evaluate=evaluate, **values), model, optimizer, shards(rank, size))

    return {
        "n_probes": message(lambda: auto(n_probes=3 + rank)),
        "evaluate": message(lambda: auto(evaluate=None if rank else lambda: 1.0)),
        "run_dir": message(lambda: auto(run_dir=None if rank else folder / "only-0")),
        "a run in the folder": message(lambda: auto(run_dir=folder / "paper")),
        "failing evaluate": message(broken_evaluate),
    }


def main(folder):
    torch.set_num_threads(1)
    single = {name: whole_run(0, 1, lambda model: model, **settings) for name, settings in RUNS.items()}
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    checks = (schedules, probes_leave_no_trace, shards_seen, bad_loss_on_one_rank, usual_of_parts, refusals)
    found = {check.__name__: check(rank, size, folder) for check in checks}
    found["single"] = single
    found["journal"] = [encode(e) for e in journal.read(folder / "bad")]
    report(folder, rank, found)
    leave(folder, size)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
