"""Learning-rate-free and schedule-free optimizers in place of the task's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from autolrs.bench.methods._method import Method, Outcome, Run, Train, recalibrate, train
from autolrs.bench.tasks import Bundle
from autolrs.rivals.learning_rate_free import d_adaptation, prodigy, schedule_free


def _replaced(make: Callable[[Bundle, Run], Any]) -> Train:
    """A method that replaces the optimizer. One with train and eval modes is measured, and left, in eval mode."""

    def run_it(bundle: Bundle, run: Run) -> Outcome:
        optimizer = make(bundle, run)
        modes = hasattr(optimizer, "eval")
        measure = run.curve.measure

        def in_eval_mode() -> Any:
            optimizer.eval()
            saved = recalibrate(bundle)
            value = measure()
            for buffer, old in saved:
                buffer.copy_(old)
            optimizer.train()
            return value

        if modes:
            optimizer.train()
            run.curve.measure = in_eval_mode
        train(bundle, run, optimizer)
        if modes:
            optimizer.eval()
            recalibrate(bundle)
        return Outcome(run.task.total_steps, 0, run.lr)

    return run_it


METHODS = (
    Method(
        "schedule-free",
        _replaced(lambda b, run: schedule_free(b.model, b.optimizer, run.lr, run.task.total_steps)),
        tuned=True,
        needs="schedulefree",
    ),
    Method(
        "schedule-free-default",
        _replaced(lambda b, run: schedule_free(b.model, b.optimizer, None, run.task.total_steps)),
        needs="schedulefree",
    ),
    Method("prodigy", _replaced(lambda b, run: prodigy(b.model, b.optimizer)), needs="prodigyopt"),
    Method("d-adaptation", _replaced(lambda b, run: d_adaptation(b.model, b.optimizer)), needs="dadaptation"),
)
