"""What the session asks of a framework. An adapter implements `Host`; `autolrs.testing.host_conformance` checks it."""

from __future__ import annotations

from typing import Protocol

Token = int


class Host(Protocol):
    """A training whose state can be saved, put back, and given an LR.

    A host may also have `lr_slot() -> mapping | None`: a mapping whose item "lr" is all that `set_lr` sets, until the
    next restore, so that a moving LR costs one store a step.
    """

    def snapshot(self) -> Token:
        """Save all that a step changes (weights, optimizer, buffers, random state); returns a token for `restore`."""

    def restore(self, token: Token) -> None:
        """Put the saved state back, LR included: whoever wants another sets it afterwards. Tokens can be reused."""

    def release(self, token: Token) -> None:
        """The token will not be restored again; its memory may be reused."""

    def set_lr(self, lr: float) -> None:
        """Set the LR of the next step."""

    def evaluate(self) -> float:
        """Validation loss at the present weights, leaving the training state as it is."""


class TrainingHost(Host, Protocol):
    """A host that also owns the training step, so that a plain loop can drive it."""

    def step(self) -> float:
        """One optimizer step on the next batch; returns its training loss."""


class PortableHost(TrainingHost, Protocol):
    """A training host whose state can travel: what a worker of a parallel run is made of (`run/worker.py`).

    It may also have `stream` (its data as a `Stream`, used with `replay`), `validation` (True if `evaluate` is the
    user's), `base_lr` (the optimizer's own LR), `usual_lr`, `proportional_steps`, `rectified`, `uncorrected`,
    `normalised` and `trained_before` (see the settings), `read(losses) -> floats`, and `prepare(settings, note)`,
    called once, before all else. To train with others: `check_split(ranks)`, which may raise beforehand, and
    `spread(rank, ranks, wrap)`, after which a step is this rank's share of one (`pytorch/task.py`).

    Where `settings.averaging` is on, `prepare` may make `averager`, a `run.averages.Averager` that the worker updates
    after each step and finishes at the run's end. Its state is part of snapshots and of `dumps`; `evaluate` sees the
    averaged weights, and with `raw=True` those that are trained. A host without one (or None) cannot average.
    """

    def dumps(self) -> bytes:
        """All of the training state, and the position in the data, in a form that can be read without running code."""

    def loads(self, data: bytes) -> None:
        """Stand where `dumps` was called, on this or on another worker. Snapshots taken before are not used again."""


class Stream(Protocol):
    """A source of batches that can go back to a marked position."""

    def mark(self) -> None:
        """Remember the present position and forget the former mark."""

    def position(self) -> int:
        """Batches given out since the mark."""

    def rewind(self, position: int = 0) -> None:
        """Go back to the mark, or to a position after it that was reached before."""

    def forget(self) -> None:
        """The mark will not be rewound to again."""
