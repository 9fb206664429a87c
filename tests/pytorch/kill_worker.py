"""A training in a process of its own, to be killed: goes on with the run in a folder, or begins it."""

import json
import time

import torch
from nets import X, Y, loss_of, make, train_step

import autolrs


def run(folder, settings, pause):
    """Train to the end and leave a digest of the final weights and the schedule in `result.json`."""
    model, optimizer, loader = make()
    auto = autolrs.resume(f"{folder}/run", model, optimizer, missing_ok=True, **with_evaluate(settings, model))
    for batch in auto.batches(loader):
        auto.step(train_step(model, optimizer, batch))
        time.sleep(pause)
    result = digest(auto, model)
    with open(f"{folder}/result.json", "w") as file:
        json.dump(result, file)


def with_evaluate(settings, model):
    """What `keep_best` needs: a validation loss, here on labels that training drives away from."""

    @torch.no_grad()
    def evaluate():
        return loss_of(model, (X, Y.flip(0)))

    return {**settings, "evaluate": evaluate} if settings.get("keep_best") else settings


def digest(auto, model):
    """The schedule, the weights and the best state, to the last bit."""
    found = {"schedule": [list(segment.__getstate__()) for segment in auto.schedule.segments], "weights": flat(model)}
    if auto.settings.keep_best:
        auto.restore_best()
        found |= {"best": [auto.best.step, auto.best.loss], "best weights": flat(model)}
    return found


def flat(model):
    return [value.double().tolist() for value in model.state_dict().values()]
