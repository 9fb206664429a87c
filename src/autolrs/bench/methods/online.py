"""Methods that move the LR as they go: hypergradients, validation hypergradients, plateaus, greed."""

from __future__ import annotations

import math
from functools import partial
from itertools import count

from torch.optim.lr_scheduler import ReduceLROnPlateau

from autolrs.bench.methods._method import Method, Outcome, Run, Train, backward, endless, train
from autolrs.bench.tasks import Bundle, Task
from autolrs.bench.tasks._task import Batches
from autolrs.rivals.greedy import Greedy
from autolrs.rivals.hypergradient import HypergradientDescent
from autolrs.rivals.marthe import GRADIENTS, Marthe
from autolrs.rivals.schedules import set_lr

LOOKS = 50  # at the validation loss during a run
GUIDELINE = tuple(10.0**-power for power in range(6, 0, -1))  # both LRs of hypergradient descent, Appendix A.5.1


def _hypergradient(bundle: Bundle, run: Run) -> Outcome:
    assert run.lr is not None
    method = HypergradientDescent(bundle.optimizer, run.lr, run.options["hypergradient_lr"])
    batches, peak = endless(bundle.loader), run.lr
    for done in range(1, run.task.total_steps + 1):
        bundle.advance(done - 1)
        loss = backward(bundle, bundle.optimizer, next(batches))
        lr = method.step()
        peak = max(peak, lr)
        run.curve.at(done, lr, loss)
    return Outcome(run.task.total_steps, 0, peak)


def _validation_hypergradient(mu: float | None) -> Train:
    """MARTHE, or with a `mu` that is not tuned a special case of it."""

    def run_it(bundle: Bundle, run: Run) -> Outcome:
        assert run.lr is not None and bundle.validation is not None
        method = Marthe(
            [p for p in bundle.model.parameters() if p.requires_grad],
            bundle.optimizer,
            run.lr,
            run.options["hypergradient_lr"],
            run.options["mu"] if mu is None else mu,
            bundle.clip,
        )
        batches, peak, held = endless(bundle.loader), run.lr, None
        for done in range(1, run.task.total_steps + 1):
            bundle.advance(done - 1)
            batch = next(batches)
            if held is None:  # as many examples as a training batch has
                size = min(len(batch[0]), len(bundle.validation[0]))
                held = endless(Batches(bundle.validation, size, run.seed))
            lr, validation = method.lr, next(held)
            loss = method.step(partial(bundle.loss, batch), partial(bundle.loss, validation))
            peak = max(peak, lr)
            run.curve.at(done, lr, loss)
        return Outcome(GRADIENTS * run.task.total_steps, 0, peak)

    return run_it


def _plateau(bundle: Bundle, run: Run) -> Outcome:
    """torch's ReduceLROnPlateau on the validation loss, which is looked at 50 times a run."""
    assert run.lr is not None
    set_lr(bundle.optimizer, run.lr)
    scheduler = ReduceLROnPlateau(bundle.optimizer, factor=0.1, patience=int(run.options["patience"]))
    every, looks = max(1, run.task.total_steps // LOOKS), count()

    def look(done: int, loss: object) -> None:
        if done % every == 0:
            next(looks)
            scheduler.step(bundle.evaluate())

    train(bundle, run, bundle.optimizer, look)
    return Outcome(run.task.total_steps, next(looks), run.lr)


def _greedy(bundle: Bundle, run: Run) -> Outcome:
    """The greedy rule on the training loss, averaged over a fiftieth of the run."""
    assert run.lr is not None
    set_lr(bundle.optimizer, run.lr)
    rule = Greedy(bundle.optimizer, (run.lr / 100, run.lr * 10), run.options["factor"], patience=1)
    every, window, peaks = max(1, run.task.total_steps // LOOKS), [], [run.lr]

    def look(done: int, loss: object) -> None:
        window.append(loss)
        if done % every == 0:
            rule.step(math.fsum(float(one) for one in window) / len(window))  # type: ignore[arg-type]
            window.clear()
            peaks.append(bundle.optimizer.param_groups[0]["lr"])

    train(bundle, run, bundle.optimizer, look)
    return Outcome(run.task.total_steps, 0, max(peaks))


def _top(task: Task) -> tuple[float, ...]:
    """Where MARTHE begins: 0.1 in the paper's experiment, the top of its interval."""
    return (task.lr[1],)


def _no_validation(task: Task) -> str | None:
    return (
        "its validation set cannot be held in memory" if task.profile == "paper" and "imagenet" in task.name else None
    )


_HYPER = {"hypergradient_lr": (1e-6, 1e-5, 1e-4, 1e-3)}

METHODS = (
    Method(
        "hypergradient",
        _hypergradient,
        tuned=True,
        lrs=lambda task: GUIDELINE,
        options={"hypergradient_lr": GUIDELINE},
    ),
    Method("rtho", _validation_hypergradient(1.0), tuned=True, lrs=_top, options=_HYPER, refuses=_no_validation),
    Method(
        "marthe",
        _validation_hypergradient(None),
        tuned=True,
        lrs=_top,
        options={**_HYPER, "mu": (0.9, 0.99, 0.999)},
        refuses=_no_validation,
    ),
    Method("plateau", _plateau, tuned=True, options={"patience": (2, 5)}),
    Method("greedy", _greedy, tuned=True, options={"factor": (0.8, 0.95)}),
)
