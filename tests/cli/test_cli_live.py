"""The live view and its plain counterpart, on a simulated run."""

from __future__ import annotations

import io

import pytest
from rich.console import Console
from simulated_run import SMALL

from autolrs.cli.live import LiveView, PlainView, planned_steps, view_of
from autolrs.core import strategies
from autolrs.core.settings import Settings
from autolrs.run.session import Session
from autolrs.testing.simulated import SimulatedHost


def session_of(preset: str = "strict", **settings):
    host = SimulatedHost(seed=1)
    config = Settings.make(preset, **{**SMALL, **settings})
    session = Session(host, config, strategies.get(config.strategy), stream=host.stream if config.replay else None)
    session.begin()
    return session, host


def play(session, host, view, steps=None):
    session.listeners.append(view.on_event)
    with view:
        while not session.done and (steps is None or session.raw_steps < steps):
            loss = host.step()
            session.step(loss)
            view.on_step(loss)


def text_of(view) -> str:
    out = Console(file=io.StringIO(), width=100, force_terminal=False)
    out.print(view.render())
    return out.file.getvalue()


def test_the_kind_of_view_follows_the_console():
    session, _ = session_of()
    assert isinstance(view_of(session, Console(file=io.StringIO()), ""), PlainView)
    assert isinstance(view_of(session, Console(file=io.StringIO(), force_terminal=True), ""), LiveView)


def test_live_view_shows_probe_best_cost_and_time():
    session, host = session_of()
    ticks = iter(range(10**6))
    out = Console(file=io.StringIO(), force_terminal=True, width=100)
    view = LiveView(session, out, "title", now=lambda: next(ticks))
    play(session, host, view, steps=215)  # stage 0 is 40 probe steps and 100 committed; stage 1 has 3 of 4 probes done
    text = text_of(view)
    for words in ("stage 1", "probe 4 of 4", "train loss", "< best so far", "100/700", "cost", "left", "x 100"):
        assert words in text, text


@pytest.mark.parametrize("strategy", strategies.STRATEGIES)
def test_live_view_lasts_a_whole_run(strategy):
    session, host = session_of(strategy=strategy)
    view = LiveView(session, Console(file=io.StringIO(), force_terminal=True, width=100), "title")
    play(session, host, view)
    assert "finished" in text_of(view)


def test_plain_view_has_a_line_for_each_probe_and_each_stage():
    session, host = session_of()
    out = Console(file=io.StringIO(), width=200)
    play(session, host, PlainView(session, out))
    lines = out.file.getvalue().splitlines()
    assert sum("probe" in line for line in lines) == 12
    assert sum("steps at LR" in line for line in lines) == 3


@pytest.mark.parametrize("preset", ["strict", "practical"])
def test_planned_steps_are_what_the_run_then_takes(preset):
    # A probe that is stopped early would make it cheaper than planned.
    session, host = session_of(preset, **({"abort_diverged": False} if preset == "practical" else {}))
    planned = planned_steps(session.state)
    while not session.done:
        session.step(host.step())
    assert session.raw_steps == planned
