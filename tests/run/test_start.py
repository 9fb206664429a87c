"""What an adapter knows by the optimizer, against what the user says, when a run goes on from its folder."""

from __future__ import annotations

import pytest

from autolrs.run.start import open_session
from autolrs.testing.simulated import SimulatedHost


def opened(folder, resume, known, **values):
    session, found = open_session(
        SimulatedHost(),
        "horizon",
        validation=False,
        run_dir=folder,
        resume=resume,
        read=list,
        versions={},
        known=known,
        **{"total_steps": 500, **values},
    )
    assert found == resume
    return session


@pytest.fixture
def folder(tmp_path):
    """That of a run which was begun with SGD."""
    session = opened(tmp_path, False, {"base_lr": 0.1, "proportional_steps": True})
    assert session.state.settings.proportional_steps
    session.begin()
    return tmp_path


def test_a_run_goes_on_as_it_was_begun_whatever_the_optimizer_is_now(folder):
    settings = opened(folder, True, {"base_lr": 0.3, "proportional_steps": False}).state.settings
    assert settings.proportional_steps and settings.base_lr == 0.1


@pytest.mark.parametrize("known", [{}, {"proportional_steps": True}])
def test_a_user_who_says_otherwise_is_refused(folder, known):
    with pytest.raises(ValueError, match="proportional_steps"):
        opened(folder, True, known, proportional_steps=False)


def test_what_the_user_gives_comes_first(tmp_path):
    session = opened(tmp_path, False, {"proportional_steps": True}, proportional_steps=False)
    assert not session.state.settings.proportional_steps
