"""A training in a process of its own, to be killed: goes on with the run in a folder, or begins it."""

import json
import time

from nets import make, train_step

import autolrs


def run(folder, settings, pause):
    """Train to the end and leave a digest of the final weights and the schedule in `result.json`."""
    model, optimizer, loader = make()
    auto = autolrs.resume(f"{folder}/run", model, optimizer, missing_ok=True, **settings)
    for batch in auto.batches(loader):
        auto.step(train_step(model, optimizer, batch))
        time.sleep(pause)
    result = digest(auto, model)
    with open(f"{folder}/result.json", "w") as file:
        json.dump(result, file)


def digest(auto, model):
    """The schedule and the weights, to the last bit."""
    weights = [value.double().tolist() for value in model.state_dict().values()]
    return {"schedule": [list(segment.__getstate__()) for segment in auto.schedule.segments], "weights": weights}
