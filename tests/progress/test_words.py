"""Events in one line."""

from __future__ import annotations

import pytest

from autolrs.core import engine
from autolrs.core.settings import Settings
from autolrs.core.types import Failed
from autolrs.progress.words import event_line


@pytest.mark.parametrize(
    ("events", "line"),
    [
        ((Failed(3, 0.1, 40),), "stage 3: a loss was not finite after 40 steps at LRs up to 0.1"),
        ((Failed(3, 0.1, 40, 2.25),), "stage 3: the loss had come back up to 2.25 after 40 steps at LRs up to 0.1"),
        (
            (Failed(3, 0.1, 40, 2.25), Failed(3, 0.025, 40, 2.5)),
            "stage 3: the loss had come back up to 2.5 after 40 steps at LRs up to 0.025; a lower LR did not help, "
            "so it is put back, and no relapse is undone any more",
        ),
    ],
)
def test_why_a_stretch_was_undone_is_said(events, line):
    state = engine.fold([engine.start(Settings(total_steps=1000, strategy="horizon")), *events])
    assert event_line(events[-1], state) == line
