"""What the other ranks say when one does not come, for `test_ddp.py`. Not a test itself.

A time-out leaves the process group unusable, so each way to be lost has a launch of its own.
"""

import sys
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from nets import PAPER, X, Y, net, train
from ranks import report

import autolrs

TIMEOUT = 15


def hang(folder, rank):
    """Rank 1 does nothing until rank 0 has given up."""
    deadline = time.monotonic() + 10 * TIMEOUT
    while rank == 1 and not (folder / "report-0.json").exists() and time.monotonic() < deadline:
        time.sleep(0.1)


def begin(**settings):
    torch.manual_seed(0)
    model = net()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    values = {**PAPER, "stage_steps": 20, "max_stage_steps": 20, **settings}
    return model, optimizer, autolrs.AutoLRS(model, optimizer, **values)


def lost_at_construction(folder, rank):
    hang(folder, rank)
    begin()


def lost_in_evaluate(folder, rank):
    def evaluate():
        hang(folder, rank)
        return 1.0

    model, optimizer, auto = begin(evaluate=evaluate, eval_every=2)
    train(auto, model, optimizer, [(X[i : i + 8], Y[i : i + 8]) for i in range(0, 48, 8)])


def main(folder, case):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(seconds=TIMEOUT))
    rank = dist.get_rank()
    begun, text = time.monotonic(), "no error"
    try:
        globals()[case](folder, rank)
    except Exception as error:
        text = f"{type(error).__name__}: {error}"
    report(folder, rank, {"message": text, "seconds": time.monotonic() - begun})


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
