"""Starts worker scripts of this folder on several ranks and reads what they report."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent


def command(worker, *args, ranks=2, restarts=0):
    launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
    if restarts:
        launcher.append(f"--max-restarts={restarts}")
    return [sys.executable, *launcher, str(HERE / worker), *map(str, args)]


def environment(**more):
    fixed = {
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join([str(HERE), *sys.path]),
        # Else torchrun's store outlives a restart, and gloo may read in it where a dead rank listened.
        "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
    }
    return {**os.environ, **fixed, **more}


def launch(worker, folder, *args, ranks=2, restarts=0, timeout=240, **env):
    """Run a worker to its end; what each rank reported."""
    for stale in Path(folder).glob("report-*.json"):
        stale.unlink()  # `leave` waits for new ones
    started = subprocess.run(
        command(worker, folder, *args, ranks=ranks, restarts=restarts),
        env=environment(**env),
        capture_output=True,
        text=True,
        timeout=timeout,
    )
    assert started.returncode == 0, started.stdout + started.stderr
    return reports(folder, ranks)


def reports(folder, ranks=2):
    return [json.loads((Path(folder) / f"report-{rank}.json").read_text()) for rank in range(ranks)]


def report(folder, rank, values):
    """Called in a worker."""
    (Path(folder) / f"report-{rank}.json").write_text(json.dumps(values))


def leave(folder, ranks):
    """Called in a worker at its end: without torch's tear-down, which now and then aborts a rank that has done all."""
    until = time.monotonic() + 60
    while time.monotonic() < until and not all((folder / f"report-{rank}.json").exists() for rank in range(ranks)):
        time.sleep(0.05)  # others may still need this one
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
