"""The live view and its plain counterpart, on a simulated run."""

from __future__ import annotations

import gc
import io
import math

import pytest

pytest.importorskip("rich")

from rich.console import Console

from autolrs.core import strategies
from autolrs.core.settings import Settings
from autolrs.progress.views import LiveView, PlainView, view_of, watched
from autolrs.progress.words import planned_steps
from autolrs.run.session import Session
from autolrs.testing.simulated import SimulatedHost

SMALL = {"total_steps": 700, "lr": (1e-3, 1.0), "stage_steps": 100, "max_stage_steps": 400, "n_probes": 4}


class Terminal(io.StringIO):
    """A file that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def floats(losses):
    return [float(loss) for loss in losses]


def session_of(preset: str = "strict", **settings):
    host = SimulatedHost(seed=1)
    config = Settings.make(preset, **{**SMALL, **settings})
    return Session(host, config, strategies.get(config.strategy), stream=host.stream if config.replay else None), host


def live_view(session, **options):
    return LiveView(session, floats, Console(file=Terminal(), force_terminal=True, width=100), **options)


@pytest.fixture(autouse=True)
def standard_output_is_given_back():
    """A view that is still open when its session goes away takes the output of whichever test runs by then."""
    yield
    gc.collect()


def play(session, host, view, steps=None):
    step = watched(session, floats, view)
    session.begin()
    while not session.done and (steps is None or session.raw_steps < steps):
        step(host.step())


def text_of(view) -> str:
    out = Console(file=io.StringIO(), width=100, force_terminal=False)
    out.print(view.render())
    return out.file.getvalue()


@pytest.fixture
def xterm(monkeypatch):
    monkeypatch.setenv("TERM", "xterm-256color")
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)


def test_the_kind_of_view_follows_the_output(xterm, monkeypatch):
    session, _ = session_of()
    assert isinstance(view_of(session, floats, io.StringIO()), PlainView)
    assert isinstance(view_of(session, floats, Terminal()), LiveView)
    monkeypatch.setenv("TERM", "dumb")
    assert isinstance(view_of(session, floats, Terminal()), PlainView)


def test_a_notebook_gets_plain_lines(xterm, monkeypatch):
    import rich.console

    monkeypatch.setattr(rich.console, "_is_jupyter", lambda: True)
    session, _ = session_of()
    assert isinstance(view_of(session, floats, Terminal()), PlainView)


def test_without_rich_there_are_plain_lines(xterm, monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "rich.console", None)
    session, host = session_of()
    view = view_of(session, floats, Terminal())
    assert isinstance(view, PlainView)
    play(session, host, view)


def test_live_view_shows_probe_best_cost_and_time():
    session, host = session_of()
    ticks = iter(range(10**6))
    view = live_view(session, now=lambda: next(ticks))
    play(session, host, view, steps=215)  # stage 0 is 40 probe steps and 100 committed; stage 1 has 3 of 4 probes done
    text = text_of(view)
    for words in ("stage 1", "probe 4 of 4", "train loss", "< best so far", "100/700", "cost", "left", "x 100"):
        assert words in text, text


@pytest.mark.parametrize("strategy", strategies.STRATEGIES)
def test_live_view_lasts_a_whole_run_and_gives_the_cursor_back(strategy):
    session, host = session_of(strategy=strategy)
    console = Console(file=Terminal(), force_terminal=True, width=100)
    view = LiveView(session, floats, console)
    play(session, host, view)
    assert "finished" in text_of(view)
    shown = console.file.getvalue()
    assert shown.rindex("\x1b[?25h") > shown.rindex("\x1b[?25l")


def test_a_run_that_is_left_gives_the_cursor_back():
    session, host = session_of()
    console = Console(file=Terminal(), force_terminal=True, width=100)
    play(session, host, LiveView(session, floats, console), steps=30)
    del session
    gc.collect()
    shown = console.file.getvalue()
    assert shown.rindex("\x1b[?25h") > shown.rindex("\x1b[?25l")


def test_losses_are_read_only_when_a_picture_is_drawn():
    session, host = session_of()
    read = []
    clock = iter(i * 0.011 for i in range(10**6))  # ten readings are a drawing apart

    def counting(losses):
        read.extend(losses)
        return floats(losses)

    view = LiveView(session, counting, Console(file=Terminal(), force_terminal=True), now=lambda: next(clock))
    play(session, host, view, steps=200)
    assert 0 < len(read) < 40


def test_plain_view_has_a_line_for_each_probe_and_each_stage_and_reads_no_loss():
    session, host = session_of()
    out = io.StringIO()

    def never(losses):
        raise AssertionError("a loss was read")

    view = PlainView(session, out)
    step = watched(session, never, view)
    session.begin()
    while not session.done:
        step(host.step())
    lines = out.getvalue().splitlines()
    assert sum("probe" in line for line in lines) == 12
    assert sum("steps at LR" in line for line in lines) == 3


def test_plain_view_tells_each_look_and_which_was_the_lowest():
    host, config = SimulatedHost(seed=1), Settings.make(**SMALL, keep_best=True)
    session, out = Session(host, config, strategies.get("paper"), validation=True), io.StringIO()
    play(session, host, PlainView(session, out))
    lines = [line for line in out.getvalue().splitlines() if line.startswith("validation loss")]
    assert len(lines) == 20
    assert [line.endswith("the lowest so far") for line in lines].count(True) >= 5
    best = next(line for line in reversed(lines) if line.endswith("the lowest so far"))
    assert f"validation loss {session.state.best.loss:.3g} at step {session.state.best.step}," in best


def test_watching_changes_nothing():
    session, host = session_of()
    play(session, host, PlainView(session, io.StringIO()))
    alone, other = session_of()
    alone.begin()
    while not alone.done:
        alone.step(other.step())
    assert session.state == alone.state
    assert math.isclose(host.loss(), other.loss())


@pytest.mark.parametrize("preset", ["strict", "practical"])
def test_planned_steps_are_what_the_run_then_takes(preset):
    # A probe that is stopped early would make it cheaper than planned.
    session, host = session_of(preset, **({"abort_diverged": False} if preset == "practical" else {}))
    session.begin()
    planned = planned_steps(session.state)
    while not session.done:
        session.step(host.step())
    assert session.raw_steps == planned
