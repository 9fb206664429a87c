"""What `test_ray_.py` runs in processes of its own: real actors, one launch of Ray for all cases that can share it."""

import json
import os
import sys
import time
from functools import partial
from pathlib import Path

import numpy as np
import ray

from autolrs import ray_
from autolrs.core import engine, strategies
from autolrs.core.settings import Settings
from autolrs.core.types import Asked, Averaged, Commit, Committed, Noted, Probed
from autolrs.run import journal
from autolrs.run.parallel import Driver
from autolrs.run.session import Session, drive
from autolrs.testing import SimulatedHost
from autolrs.testing.pool import VirtualPool

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

    found["averaged"] = averaged(folder / "averaged")

    together = {"commit": "ddp", "run_dir": folder / "refused"}
    for name, make, values in (
        ("broken", Broken, {"num_workers": 1}),
        ("greedy", SimulatedHost, {"num_workers": 3}),
        ("nonsense", dict, {"num_workers": 1}),
        ("used folder", SimulatedHost, {"run_dir": folder / "two"}),
        ("odd", partial(regression, examples=41), together),
        ("no torch task", SimulatedHost, together),
        ("alone", regression, {**together, "num_workers": 1}),
        ("options", regression, {**together, "worker_options": {"name": "x"}}),
        ("commit", regression, {**together, "commit": "all"}),
    ):
        try:
            ray_.fit(make, PAPER, **values)
        except Exception as error:
            found[name] = f"{type(error).__name__}: {error}"
    found["nothing begun"] = not (folder / "refused").exists()
    found["still there"] = ray.is_initialized()
    ray.shutdown()
    print(json.dumps(found))


def averaged(folder):
    """Whether weights that are averaged by default, on two workers, are those of AutoLRS."""
    import torch

    from autolrs import AutoLRS

    result = ray_.fit(regression, {"total_steps": 300}, num_workers=2, run_dir=folder)
    model, optimizer, loader, loss_fn = regression()
    auto = AutoLRS(model, optimizer, total_steps=300, keep_best=False)
    for batch in auto.batches(loader):
        loss = loss_fn(batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        auto.step(loss)
    weights = zip(model.parameters(), result.task().model.parameters(), strict=True)
    return {
        "settings": result.state.settings == auto.settings.with_(parallel=2),
        "schedule": result.schedule == auto.schedule,
        "weights": all(torch.equal(*pair) for pair in weights),
        "events": [event.used for event in journal.read(folder) if isinstance(event, Averaged)],
    }


def defaults(folder):
    """What runs that are not told about averaging do; no launch of Ray is needed for that."""
    torch_task, by_settings = (lambda: ray_.as_task(regression())), Settings.make(strategy="horizon", total_steps=250)
    cases = {
        "long": (torch_task, {"total_steps": 250}, None),
        "short": (torch_task, {"total_steps": 249}, None),
        "off": (torch_task, {"total_steps": 250, "averaging": False}, None),
        "short, on": (torch_task, {"total_steps": 249, "averaging": True}, None),
        "own hold": (torch_task, {"total_steps": 250, "hold_until": 0.25}, None),
        "paper": (torch_task, {"total_steps": 250, "stage_steps": 50, "strategy": "paper"}, None),
        "Paper": (torch_task, {"total_steps": 250, "stage_steps": 50}, strategies.get("paper")),
        "Settings": (torch_task, by_settings, None),
        "Settings, on": (torch_task, by_settings.with_(averaging=True), None),
        "cannot": (SimulatedHost, {"total_steps": 250}, None),
        "cannot, on": (SimulatedHost, {"total_steps": 250, "averaging": True}, None),
    }
    found = {}
    for name, (make, settings, strategy) in cases.items():
        config, plain = ray_._settings(settings, 1, strategy)
        driver = Driver(VirtualPool(make), strategy or strategies.get(config.strategy))
        try:
            driver.start(config, plain=plain)
        except ValueError as error:
            found[name] = str(error)
        else:
            chosen = driver.state.settings
            found[name] = [chosen.averaging, chosen.hold_until, chosen.decay_to, chosen.horizon_shift]
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


# Commits on all workers together

GRID = Settings(
    lr=(1e-3, 1e-1),
    total_steps=120,
    stage_steps=40,
    max_stage_steps=80,
    n_probes=2,
    search="grid",
    replay=True,
    averaging=True,
)


def regression(flag=None, examples=64):
    """A training without random numbers in a step, and of which the second rank dies once, if `flag` is there."""
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    inputs = torch.randn(examples, 4)
    loader = DataLoader(TensorDataset(inputs, inputs.sum(1, keepdim=True)), batch_size=8, shuffle=True)
    steps = 0

    def loss_fn(batch):
        nonlocal steps
        steps += 1
        if steps == 20 and os.environ.get("RANK") == "1" and flag is not None and flag.exists():
            flag.unlink()
            os._exit(1)
        return torch.nn.functional.mse_loss(model(batch[0]), batch[1])

    return model, optimizer, loader, loss_fn


def begin_together(folder):
    """Loses a rank in the first commit, and the driver when the second is asked for."""
    (folder / "flag").touch()

    def kill(event):
        if isinstance(event, Asked) and isinstance(event.command, Commit) and event.command.stage == 1:
            os.kill(os.getpid(), 9)

    make = partial(regression, folder / "flag")
    ray_.fit(make, GRID, num_workers=2, run_dir=folder / "killed", commit="ddp", on_event=kill)


def go_on_together(folder):
    """Resumes that run, and does the same on two workers in this process of which one commits."""
    result = ray_.resume(folder / "killed", regression, commit="ddp")
    driver, events = Driver(VirtualPool(lambda: ray_.as_task(regression()), 2), strategies.get("paper")), []
    driver.listeners.append(events.append)
    driver.start(GRID.with_(parallel=2))
    driver.run()
    one = ray_.as_task(regression())
    one.loads(driver.training_state)
    past = engine.history(journal.read(folder / "killed"))
    print(
        json.dumps(
            {
                "ddp": summary(result.schedule, result.task(), past),
                "one": summary(driver.state.schedule, one, events),
            }
        )
    )


def summary(schedule, task, events):
    losses = [loss for event in events if isinstance(event, Committed) for loss in event.losses]
    weights = [value for parameter in task.parameters() for value in parameter.flatten().tolist()]
    return {"schedule": schedule.to_json(), "losses": losses, "weights": weights}


if __name__ == "__main__":
    cases = {
        "shared": shared,
        "defaults": defaults,
        "begin": begin,
        "go_on": go_on,
        "begin_together": begin_together,
        "go_on_together": go_on_together,
    }
    cases[sys.argv[1]](Path(sys.argv[2]))
