"""What people ask of a run, in every adapter that drives a session of its own."""

from __future__ import annotations

from autolrs.core.schedule import Schedule
from autolrs.core.settings import Settings
from autolrs.core.types import Looked
from autolrs.run.session import Session


class Facade:
    """The questions that a `session` answers."""

    session: Session

    @property
    def exploring(self) -> bool:
        """Whether the next step belongs to a probe and will be undone."""
        return self.session.exploring

    @property
    def done(self) -> bool:
        """Whether `total_steps` are committed."""
        return self.session.done

    @property
    def committed_steps(self) -> int:
        """Steps that changed the training for good."""
        return self.session.committed_steps

    @property
    def raw_steps(self) -> int:
        """All steps: committed, probed and aborted."""
        return self.session.raw_steps

    @property
    def schedule(self) -> Schedule:
        """The schedule committed so far."""
        return self.session.state.schedule

    @property
    def best(self) -> Looked | None:
        """With `keep_best`: `step` and `loss` of the lowest validation loss; None before the first look."""
        return self.session.state.best

    def restore_best(self) -> None:
        """With `keep_best`: put everything back as it was when the validation loss was lowest; on every rank.

        After the run, or in the middle of it: then the run goes on from there with the LRs that it would have had.
        While LRs are being probed it is refused.
        """
        self.session.restore_best()

    @property
    def settings(self) -> Settings:
        """The run's settings."""
        return self.session.state.settings
