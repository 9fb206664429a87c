"""What autolrs costs on two ranks: a step of a DDP loop with it and without, and the restore of a sharded model.

Two processes over gloo on this machine. What is compared alternates in the same processes, so that a busy machine slows
both.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

import autolrs
from autolrs.bench.rows import Row

STEP = 5.0  # milliseconds of the step that the overhead is set against


def rows(*, quick: bool = False) -> Iterator[Row]:
    """The rows for `autolrs bench overhead`."""
    raw = measure(quick=quick)
    steps, restores = raw["steps"], raw["restores"]
    share = [100 * call / STEP for call in steps["auto.step"]]
    beside = f"bare DDP step {median(steps['bare step']):.1f} ms, auto.step {1e3 * median(steps['auto.step']):.0f} us"
    yield Row(f"auto.step on 2 ranks, of a {STEP:g} ms step", median(share), 1.0, "%", beside, steps)
    over = [a / b for a, b in zip(restores["restore"], restores["memcpy"], strict=True)]
    beside = f"{median(restores['restore']):.0f} ms, memcpy {median(restores['memcpy']):.0f} ms on each of 2 ranks"
    yield Row("restore of a sharded model over memcpy", median(over), 1.5, "x", beside, restores)


def measure(*, quick: bool = False, ranks: int = 2) -> dict[str, Any]:
    """Start the ranks, and read what rank 0 measured."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "rows.json"
        source = str(Path(autolrs.__file__).parents[1])
        shared = {
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
            "WORLD_SIZE": str(ranks),
            "OMP_NUM_THREADS": "1",
        }
        path = os.pathsep.join([source, *filter(None, [os.environ.get("PYTHONPATH")])])
        processes = [
            subprocess.Popen(
                [sys.executable, "-m", "autolrs.bench.distributed", str(out), str(int(quick))],
                env={**os.environ, **shared, "OMP_NUM_THREADS": "1", "PYTHONPATH": path, "RANK": str(rank)},
            )
            for rank in range(ranks)
        ]
        try:
            codes = [process.wait(timeout=600) for process in processes]
        finally:
            for process in processes:
                process.kill()
        if any(codes):
            raise RuntimeError(f"the ranks ended with {codes}")
        values: dict[str, Any] = json.loads(out.read_text())
        return values


def step_costs(repeats: int, chunk: int) -> dict[str, list[float]]:
    """Milliseconds a step of a DDP loop and of `auto.step` in it, the exchange of losses at a boundary included.

    The call is timed where it stands, in turn with the step itself: its microseconds would drown in the differences
    between two runs of whole loops. Each chunk has one boundary, and is a mean, since that must count.
    """
    torch.manual_seed(0)
    model = nn.parallel.DistributedDataParallel(nn.Sequential(*(nn.Linear(128, 128) for _ in range(4))))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    x, clock = torch.randn(64, 128), time.perf_counter
    # Losses are averaged every thousand steps at the latest; a profile's segments say when else.
    auto = autolrs.AutoLRS(
        model, optimizer, lr=(1e-5, 1e-4), strategy="paper", total_steps=10**8, stage_steps=10**7, max_stage_steps=10**7
    )
    times: dict[str, list[float]] = {"bare step": [], "auto.step": []}
    for repeat in range(repeats + 1):
        trained = told = 0.0
        for _ in range(chunk):
            begun = clock()
            loss = model(x).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            middle = clock()
            auto.step(loss)
            told += clock() - middle
            trained += middle - begun
        if repeat:
            times["bare step"].append(1e3 * trained / chunk)
            times["auto.step"].append(1e3 * told / chunk)
    return times


def restore_costs(repeats: int, width: int) -> dict[str, list[float]]:
    """Milliseconds of CPU for a restore of this rank's shards, and for a copy of as many bytes."""
    from torch.distributed.fsdp import fully_shard

    from autolrs.pytorch.state import TorchHost, local

    model = nn.Sequential(*(nn.Linear(width, width) for _ in range(6)))
    fully_shard(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    model(torch.randn(2, width)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    host = TorchHost(model, optimizer)
    token = host.snapshot()
    count = 3 * sum(local(parameter).numel() for parameter in model.parameters())
    source, target = torch.ones(count), torch.empty(count)
    times: dict[str, list[float]] = {"memcpy": [], "restore": []}
    for repeat in range(repeats + 1):
        for name, act in (("memcpy", lambda: target.copy_(source)), ("restore", lambda: host.restore(token))):
            begun = time.process_time()
            act()
            if repeat:
                times[name].append(1e3 * (time.process_time() - begun))
    return times


def main(out: Path, quick: bool) -> None:
    """One rank."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    steps = step_costs(1 if quick else 7, 100 if quick else 1000)
    restores = restore_costs(3 if quick else 9, 256 if quick else 2048)
    if dist.get_rank() == 0:
        out.write_text(json.dumps({"steps": steps, "restores": restores}))
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]), bool(int(sys.argv[2])))
