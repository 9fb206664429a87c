"""The page as text: what is in it, that it is safe, and that it stays small; `test_report_browser.py` opens it."""

from __future__ import annotations

import json
import re
import sys

import pytest
from long_run import long_events
from simulated_events import events_of

pytest.importorskip("plotly")

from autolrs import Schedule, Segment
from autolrs.core.types import Noted
from autolrs.report import page, specs
from autolrs.report.info import gather
from autolrs.report.load import LoadedRun
from autolrs.report.reuse import merged, python_code

RUNS = {
    "paper": {},
    "practical": {"preset": "practical", "lr": (1e-2, 50.0)},
    "validation": {"validation": True},
    "keep best": {"validation": True, "keep_best": True},
    "warm-up": {"warmup_steps": 50, "lr": "auto", "range_lr": (1e-4, 10.0)},
    "horizon": {"strategy": "horizon", "total_steps": 2000},
    "horizon, ramp only": {"strategy": "horizon", "total_steps": 200},
    "horizon, nothing learned": {"strategy": "horizon", "total_steps": 3000, "lr": (1e-4, 50.0), "offset": 1000.0},
    "horizon, searching": {"strategy": "horizon", "steps": 60},
    "killed in its first probe": {"steps": 3},
    "killed in stage 1": {"steps": 230},
}


def loaded(name="a run", **settings) -> LoadedRun:
    return LoadedRun(name, gather(events_of(**settings)))


def figures_of(text: str) -> dict:
    return json.loads(re.search(r'id="figures">(.*?)</script>', text, re.DOTALL)[1])


def without_script(text: str) -> str:
    """The page without Plotly's own script."""
    return text.replace(page.plotly_js(), "")


@pytest.mark.parametrize("settings", RUNS.values(), ids=RUNS)
def test_every_shape_of_run_has_a_page_whose_figures_plotly_takes(settings):
    from plotly.graph_objects import Figure

    from autolrs.report.theme import DARK, resolve

    text = page.render([loaded(**settings)])
    figures = figures_of(text)
    for key in re.findall(r'data-figure="([^"]+)"', text):
        spec = figures.pop(key)
        for one in spec["stages"].values() if "stages" in spec else [spec]:
            Figure(resolve(one, DARK))
    assert figures == {}  # none without a place


def test_the_sections_follow_the_strategy():
    paper, horizon = page.render([loaded()]), page.render([loaded(strategy="horizon", total_steps=2000)])
    assert "How each learning rate was chosen" in paper and "Were the forecasts right?" in paper
    assert "How the peak was chosen" in horizon and "plausible peaks" in horizon
    assert "for the horizon" in horizon and "How each learning rate was chosen" not in horizon


def test_a_page_says_that_the_interval_ends_too_low():
    text = page.render([loaded(strategy="horizon", total_steps=3000, lr=(1e-5, 0.02))])
    assert "seems to lie above the interval" in text and "wants a lower peak" not in text


def test_looks_are_drawn_and_the_best_is_told():
    run = loaded(validation=True, keep_best=True)
    best, text = run.info.best, page.render([run])
    assert f"The validation loss was lowest, {best.loss:.4g}, at step {best.step:,}." in text
    assert "Best validation loss" in text and "Best validation loss" not in page.render([loaded(validation=True)])
    figures = [figure for name, figure in figures_of(text).items() if name.endswith("-loss")]
    lines = {trace["name"]: trace for trace in figures[0]["data"]}
    assert len(lines["validation loss"]["x"]) == 20
    assert lines["best state"]["y"] == [pytest.approx(best.loss, rel=1e-4)]


def test_nothing_points_outside_the_file():
    text = without_script(page.render([loaded()]))
    assert not re.findall(r'(?:src|href|action)="(?!#)[^"]*"', text)
    assert "http://" not in text and "https://" not in text
    assert "default-src 'none'" in text


@pytest.mark.parametrize(
    "hostile", ["</script><script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "<!--<script>"]
)
def test_what_users_wrote_cannot_become_markup(hostile):
    events = events_of(steps=230)
    events = [*events, Noted(hostile)]
    run = LoadedRun(hostile, gather(events))
    plain = without_script(page.render([loaded(steps=230)]))
    for runs in ([run], [run, LoadedRun("b", run.info)]):
        text = without_script(page.render(runs, paths=[hostile] * len(runs)))
        assert "<script>alert" not in text and "<img" not in text and "<!--" not in text
        if len(runs) == 1:
            assert text.count("<script") == plain.count("<script")
        json.dumps(figures_of(text))


def test_every_figure_has_a_caption_and_the_main_ones_a_table():
    text = page.render([loaded(validation=True, total_steps=1500)])
    figures = re.findall(r"<figure>.*?</figure>", text, re.DOTALL)
    assert len(figures) == 6
    assert all("<figcaption>" in figure and 'role="img"' in figure for figure in figures)
    assert text.count("The numbers as a table") >= 4 + 3  # schedule, loss, forecasts, cost; and one for each stage


def test_a_comparison_has_a_table_and_both_overlays():
    text = page.render([loaded("first"), loaded("second", strategy="horizon")], target=0.2)
    assert "2 runs compared" in text and "steps to loss 0.2" in text
    figures = figures_of(text)
    for key in ("compare-lr", "compare-loss"):
        names = [trace["name"] for trace in figures[key]["data"]]
        assert names[:2] == ["first", "second"]
        dashes = {trace["line"]["dash"] for trace in figures[key]["data"][:2]}
        assert len(dashes) == 2  # colour is not all that tells them apart


def test_a_million_steps_stay_few_points():
    run = LoadedRun("long", gather(long_events()))
    assert run.info.schedule.total_steps == 1_000_000
    text = page.render([run])
    assert len(text) - len(page.plotly_js()) < 8_000_000
    for key, spec in figures_of(text).items():
        for one in spec["stages"].values() if "stages" in spec else [spec]:
            marks = sum(len(t["x"]) for t in one["data"] if "markers" in t.get("mode", ""))
            assert sum(len(trace["x"]) for trace in one["data"]) < 15_000, key
            assert marks < 1_000, key
    losses = {trace["name"]: trace["y"] for trace in figures_of(text)["run0-losses-loss"]["data"]}
    assert max(v for v in losses["training loss"] if v is not None) == 123.0  # the one spike is still there


def test_the_code_to_reuse_makes_the_same_schedule():
    schedule = gather(events_of(strategy="horizon", total_steps=3000)).schedule
    scope: dict = {}

    class Optimizer:
        pass

    code = python_code(schedule).replace("schedule.to_torch(optimizer)", "None")
    exec(code, scope)
    again = scope["schedule"]
    assert again.total_steps == schedule.total_steps and len(again.segments) == 2 < len(schedule.segments)
    assert again.lrs() == pytest.approx(schedule.lrs(), rel=1e-9, abs=1e-15)


def test_only_pieces_of_one_line_are_joined():
    bent = Schedule((Segment(10, 1.0, 0.5), Segment(10, 0.5, 0.4), Segment(10, 0.4, 0.4), Segment(10, 0.4, 0.4)))
    assert [s.steps for s in merged(bent).segments] == [10, 10, 20]


def test_no_runs_are_refused():
    with pytest.raises(ValueError, match="at least one run"):
        page.render([])


def test_the_page_needs_no_plotly_package(monkeypatch):
    for name in ("plotly", "plotly.offline", "plotly.graph_objects"):
        monkeypatch.setitem(sys.modules, name, None)
    assert "plotly.js (basic - minified)" in page.plotly_js()


def test_the_page_names_a_held_peak_once():
    names = specs.schedule_spec(gather(events_of(strategy="horizon", total_steps=2000, hold_until=0.5)))["layout"]
    assert [note["text"].count("<b>") for note in names["annotations"]] == [1]
