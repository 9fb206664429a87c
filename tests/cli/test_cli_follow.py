"""`show --follow`: the journal of a run in another process is followed to its end."""

from __future__ import annotations

import io

import pytest
from rich.console import Console
from simulated_run import SMALL, make_run

from autolrs.cli.follow import Follower, follow
from autolrs.core import engine, strategies
from autolrs.core.settings import Settings
from autolrs.core.types import Resumed
from autolrs.run import journal
from autolrs.run.journal import Journal
from autolrs.run.session import Session, drive
from autolrs.testing.simulated import SimulatedHost


def under_way(folder, **settings):
    host = SimulatedHost(seed=1)
    config = Settings.make(**{**SMALL, **settings})
    stream = host.stream if config.replay else None
    session = Session(host, config, strategies.get(config.strategy), stream=stream, journal=Journal.create(folder))
    drive(session, host, 30)
    return session, host


def followed(folder, session, host, *, terminal=False, steps=120) -> str:
    """What is shown while each wait lets the run go on by some steps."""
    out = Console(file=io.StringIO(), force_terminal=terminal, width=120)
    follow(folder, out, sleep=lambda _: drive(session, host, steps))
    return out.file.getvalue()


@pytest.mark.parametrize("strategy", strategies.STRATEGIES)
def test_a_run_is_followed_to_its_end_in_plain_lines(tmp_path, strategy):
    session, host = under_way(tmp_path, strategy=strategy)
    text = followed(tmp_path, session, host)
    assert "finished: total_steps reached" in text and "\x1b" not in text
    assert text.count("steps at LR") == (tmp_path / journal.NAME).read_text().count('"kind":"Committed"')


def test_a_terminal_gets_a_picture(tmp_path):
    session, host = under_way(tmp_path)
    text = followed(tmp_path, session, host, terminal=True)
    for words in ("probe 4 of 4", "best so far", "last record", "700/700", "cost 1.40 x"):
        assert words in text, words


def test_whoever_comes_late_is_told_the_end_of_what_was(cli, run_folder):
    result = cli("show", run_folder, "--follow")
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert "earlier lines" in lines[0] and lines[-1] == "finished: total_steps reached"


def test_a_folder_that_does_not_answer_for_a_while_is_waited_for(tmp_path):
    session, host = under_way(tmp_path / "run")
    away = iter([True, False])

    def sleep(_):
        if next(away, False):
            (tmp_path / "run").rename(tmp_path / "gone")
        elif (tmp_path / "gone").exists():
            (tmp_path / "gone").rename(tmp_path / "run")
            drive(session, host)

    out = Console(file=io.StringIO(), width=120)
    follow(tmp_path / "run", out, sleep=sleep)
    assert "finished" in out.file.getvalue()


def test_leaving_does_not_touch_the_run(tmp_path):
    under_way(tmp_path)
    before = (tmp_path / journal.NAME).read_bytes()

    def interrupt(_):
        raise KeyboardInterrupt

    out = Console(file=io.StringIO(), width=120)
    follow(tmp_path, out, sleep=interrupt)
    assert "not touched" in out.file.getvalue()
    assert (tmp_path / journal.NAME).read_bytes() == before


def test_the_followed_state_is_the_folded_one_across_a_resume(tmp_path):
    make_run(tmp_path)
    events = journal.read(tmp_path)
    events = [*events[:12], Resumed(8), *events[8:]]
    follower = Follower()
    for end in range(1, len(events) + 1):
        follower.news(events[:end])
        assert follower.state == engine.fold(events[:end])


def test_what_is_no_run_is_refused(cli, tmp_path):
    result = cli("show", tmp_path / "nothing", "--follow")
    assert result.exit_code == 1 and "does not exist" in result.stderr
