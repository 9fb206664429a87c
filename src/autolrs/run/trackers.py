"""A run's numbers for experiment trackers: TensorBoard, MLflow, Weights & Biases, or any function.

The x axis is committed steps. Losses and LRs of committed training are `autolrs/loss` and `autolrs/lr`, looks of
`keep_best` are `autolrs/validation_loss`; what a probe found is under `autolrs/probe/`, at the committed step where it
was tried, so that it never looks like training.
"""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from autolrs.core.engine import State
from autolrs.core.types import Aborted, Committed, Event, Finished, Looked, Probed, locate, profile_steps

Values = dict[str, float]

_STEP = "autolrs/committed_steps"


class Sink(NamedTuple):
    """The functions that log to a tracker and flush it."""

    log: Callable[[Values, int], Any]
    flush: Callable[[], Any] = lambda: None


def records(event: Event, state: State) -> Iterator[tuple[Values, int]]:
    """What to log of an event, given the state after it: names and values, and the committed step they belong to."""
    if isinstance(event, Committed):
        # A journal's series are thinned: the losses are spread evenly over the steps that were run now.
        before, count = state.committed_steps - event.steps, len(event.losses)
        skipped = profile_steps(event.profile) - event.steps
        for i, loss in enumerate(event.losses):
            done = max(1, round(event.steps * (i + 1) / count))
            segment, offset = locate(event.profile, skipped + done - 1)
            yield {"autolrs/loss": loss, "autolrs/lr": segment.lr_at(offset)}, before + done
        yield {"autolrs/raw_steps": float(state.raw_steps)}, state.committed_steps
    elif isinstance(event, Looked):
        yield {"autolrs/validation_loss": event.loss}, event.step
    elif isinstance(event, (Probed, Aborted)):
        values = {"stage": event.stage, "index": event.index, "lr": event.lr, "steps": event.steps}
        if isinstance(event, Probed):
            values["forecast"] = event.forecast.value
        if event.losses:
            values["loss"] = event.losses[-1]
        values["aborted"] = float(isinstance(event, Aborted))
        yield {f"autolrs/probe/{name}": float(value) for name, value in values.items()}, state.committed_steps


class Trackers:
    """Sends a run's records to sinks. One that fails is left out with a warning: no tracker may stop a training."""

    def __init__(self, trackers: Iterable[Any], run_dir: str | Path | None = None) -> None:
        self._sinks = [_sink(tracker, run_dir) for tracker in trackers]

    def __call__(self, event: Event, state: State) -> None:
        """Log an event, given the state after it."""
        rows = list(records(event, state))
        for sink in list(self._sinks):
            try:
                for values, step in rows:
                    sink.log(values, step)
                if isinstance(event, (Committed, Finished)):
                    sink.flush()
            except Exception as error:
                self._sinks.remove(sink)
                warnings.warn(
                    f"a tracker failed and gets nothing more of this run: {error!r}", RuntimeWarning, stacklevel=2
                )


def _sink(tracker: Any, run_dir: str | Path | None) -> Sink:
    if tracker == "tensorboard":
        if run_dir is None:
            raise ValueError("the tracker 'tensorboard' writes into `run_dir`: give one, or pass a SummaryWriter")
        writer = _package("torch.utils.tensorboard", "tensorboard").SummaryWriter(str(Path(run_dir) / "tensorboard"))
        return _tensorboard(writer)
    if tracker == "mlflow":
        mlflow = _package("mlflow", "mlflow-skinny")
        return Sink(lambda values, step: mlflow.log_metrics(values, step=step))
    if tracker == "wandb":
        wandb = _package("wandb", "wandb")
        return _wandb(wandb.run or wandb.init(project="autolrs", dir=None if run_dir is None else str(run_dir)))
    if hasattr(tracker, "add_scalar"):
        return _tensorboard(tracker)
    if hasattr(tracker, "define_metric"):
        return _wandb(tracker)
    if callable(tracker):
        return Sink(tracker)
    raise TypeError(
        "`trackers` may hold 'tensorboard', 'mlflow', 'wandb', a SummaryWriter, a W&B run, or a function "
        f"(values, step), got {tracker!r}"
    )


def _tensorboard(writer: Any) -> Sink:
    def log(values: Values, step: int) -> None:
        for name, value in values.items():
            writer.add_scalar(name, value, step)

    return Sink(log, writer.flush)


def _wandb(run: Any) -> Sink:
    # W&B's own step counts calls and cannot go back; a metric of ours is the x axis instead.
    run.define_metric(_STEP)
    run.define_metric("autolrs/*", step_metric=_STEP)
    return Sink(lambda values, step: run.log({**values, _STEP: step}))


def _package(module: str, package: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ImportError(f"this tracker needs {package}: pip install {package}") from error
