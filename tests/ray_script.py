"""What `test_ray_.py` runs in processes of its own: real actors, one launch of Ray for all cases that can share it."""

import json
import os
import sys
import time
from pathlib import Path

import numpy as np
import ray

from autolrs import ray_
from autolrs.core import strategies
from autolrs.core.settings import Settings
from autolrs.core.types import Asked, Commit, Noted, Probed
from autolrs.run.session import Session, drive
from autolrs.testing import SimulatedHost

PAPER = Settings(lr=(1e-3, 1.0), total_steps=700, stage_steps=100, max_stage_steps=400, n_probes=4, replay=True)
HORIZON = Settings.make(strategy="horizon", total_steps=2000)


class Mortal(SimulatedHost):
    """Ends its process in the middle of a probe or a commit, as an out-of-memory kill does, once for each flag file."""

    flags = ()

    def step(self):
        for flag, position in self.flags:
            if self.position == position and flag.exists():
                flag.unlink(missing_ok=True)
                os._exit(1)
        return super().step()


class Sleepy(SimulatedHost):
    """Never comes back from one step of the first probe that gets there."""

    flag = Path()

    def step(self):
        if self.position == 35 and self.flag.exists():
            self.flag.unlink(missing_ok=True)
            time.sleep(10_000)
        return super().step()


class Broken(SimulatedHost):
    def step(self):
        raise ZeroDivisionError("no data today")


def alone(settings):
    host = SimulatedHost()
    state = drive(Session(host, settings, strategies.get(settings.strategy), stream=host.stream), host)
    return state.schedule, host.mean_square


def same(result, settings):
    schedule, weights = alone(settings)
    return result.schedule == schedule and np.array_equal(result.task().mean_square, weights)


def shared(folder):
    """All cases that need no launch of their own."""
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    found = {}
    found["one worker"] = same(ray_.fit(SimulatedHost, PAPER, num_workers=1), PAPER)

    events = []
    result = ray_.fit(SimulatedHost, HORIZON, num_workers=2, run_dir=folder / "two", on_event=events.append)
    found["two workers"] = same(result, HORIZON)
    open_probes, most = 0, 0
    for event in events:
        open_probes += isinstance(event, Asked) and not isinstance(event.command, Commit)
        open_probes -= isinstance(event, Probed)
        most = max(most, open_probes)
    found["probes at once"] = most

    flags = [(folder / "probe", 30), (folder / "commit", 500)]
    for flag, _ in flags:
        flag.touch()

    def mortal():
        host = Mortal()
        host.flags = flags
        return host

    events = []
    result = ray_.fit(mortal, HORIZON, num_workers=2, on_event=events.append)
    found["deaths"] = same(result, HORIZON)
    found["death notes"] = [event.message for event in events if isinstance(event, Noted) and "died" in event.message]

    flag = folder / "sleep"
    flag.touch()

    def sleepy():
        host = Sleepy()
        host.flag = flag
        return host

    events = []
    result = ray_.fit(sleepy, HORIZON, num_workers=2, timeout=8.0, on_event=events.append)
    found["straggler"] = same(result, HORIZON)
    found["straggler notes"] = [event.message for event in events if isinstance(event, Noted)]

    for name, make, values in (
        ("broken", Broken, {"num_workers": 1}),
        ("greedy", SimulatedHost, {"num_workers": 3}),
        ("nonsense", dict, {"num_workers": 1}),
        ("used folder", SimulatedHost, {"run_dir": folder / "two"}),
    ):
        try:
            ray_.fit(make, PAPER, **values)
        except Exception as error:
            found[name] = f"{type(error).__name__}: {error}"
    found["still there"] = ray.is_initialized()
    ray.shutdown()
    print(json.dumps(found))


def begin(folder):
    """A run whose driver is killed in its second stage, right after a decision; Ray is started by `fit` itself."""

    def kill(event):
        if isinstance(event, Asked) and event.command.stage == 1 and getattr(event.command, "index", 0) == 2:
            os.kill(os.getpid(), 9)

    ray_.fit(SimulatedHost, PAPER, num_workers=1, run_dir=folder / "killed", on_event=kill)


def go_on(folder):
    result = ray_.resume(folder / "killed", SimulatedHost)
    print(json.dumps({"same": same(result, PAPER), "own Ray ended": not ray.is_initialized()}))


if __name__ == "__main__":
    {"shared": shared, "begin": begin, "go_on": go_on}[sys.argv[1]](Path(sys.argv[2]))
