"""The page in a real browser: no errors, no requests, figures drawn, in light and dark, on a phone, by keyboard."""

from __future__ import annotations

import threading
import time

import pytest
from browser import Tab, chromium
from long_run import long_events
from simulated_events import SMALL, events_of

pytest.importorskip("plotly")

from autolrs.core import strategies
from autolrs.core.settings import Settings
from autolrs.core.types import Noted
from autolrs.report import page
from autolrs.report.info import gather
from autolrs.report.load import LoadedRun
from autolrs.report.server import ReportServer
from autolrs.run.journal import Journal
from autolrs.run.session import Session, drive
from autolrs.testing.simulated import SimulatedHost

pytestmark = pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")


@pytest.fixture(scope="module")
def browser():
    with chromium() as started:
        yield started


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """Addresses of pages: a paper run, a horizon run, both compared, a hostile one, and a million steps."""
    folder = tmp_path_factory.mktemp("pages")
    settings = {"total_steps": 2000, "stage_steps": 200, "max_stage_steps": 800, "lr": (1e-3, 50.0)}
    paper = LoadedRun("paper", gather(events_of(validation=True, abort_diverged=True, **settings)), 1.7e9, 75.0)
    horizon = LoadedRun("horizon", gather(events_of(strategy="horizon", **settings)), 1.7e9, 75.0)
    nasty = "</script><img src=x onerror=document.title='got'>"
    hostile = LoadedRun(nasty, gather([*events_of(steps=230), Noted(nasty)]))
    long = LoadedRun("long", gather(long_events()))
    made = {
        "paper": [paper],
        "horizon": [horizon],
        "both": [paper, horizon],
        "hostile": [hostile, paper],
        "long": [long],
    }
    for name, runs in made.items():
        page.write(runs, folder / f"{name}.html")
    return {name: (folder / f"{name}.html").as_uri() for name in made}


@pytest.fixture(scope="module")
def paper(browser, pages):
    """The paper run's page, opened once."""
    with Tab(browser, permissions=["clipboard-read", "clipboard-write"]) as tab:
        tab.open(pages["paper"])
        yield tab


def test_the_first_tab_key_leads_past_the_head(paper):
    paper.page.keyboard.press("Tab")
    assert paper.page.evaluate("document.activeElement.className") == "skip"


@pytest.mark.parametrize(
    ("name", "figures", "dark", "width"),
    [("paper", 6, False, 1200), ("horizon", 6, True, 1200), ("both", 14, True, 390)],
)
def test_all_figures_are_drawn_without_a_complaint_or_a_request(browser, pages, name, figures, dark, width):
    phone = {"is_mobile": True, "has_touch": True} if width < 500 else {}
    with Tab(browser, dark=dark, width=width, **phone) as tab:
        tab.open(pages[name])
        assert tab.complaints == []
        assert [url for url in tab.requests if not url.startswith(("file:", "data:", "blob:"))] == []
        drawn = tab.page.evaluate(
            "[...document.querySelectorAll('.plot')].filter(p => p.querySelectorAll('.trace').length && "
            "p.getBoundingClientRect().height > 100).length"
        )
        assert drawn == tab.page.locator(".plot").count() == figures
        wide = tab.page.evaluate("document.documentElement.scrollWidth")
        assert wide <= width  # nothing sticks out sideways
        ink = tab.page.evaluate("getComputedStyle(document.querySelector('.plot .xtick text')).fill")
        assert ink == ("rgb(230, 237, 243)" if dark else "rgb(27, 38, 49)")


def test_the_stage_is_chosen_by_keyboard(paper):
    shown = paper.page.locator("[data-of='run0-stages-picker']:not([hidden])")
    before = shown.get_attribute("data-stage")
    paper.page.locator("select").focus()
    paper.page.keyboard.press("Home")
    assert shown.get_attribute("data-stage") == "0" != before
    paper.page.keyboard.press("Tab")  # "Previous" is disabled at the first stage and passed over
    paper.page.keyboard.press("Enter")
    assert shown.get_attribute("data-stage") == "1"
    assert "train loss" in paper.page.locator("[data-figure='run0-stages-probes'] .ytitle").text_content()


def test_everything_that_can_be_used_can_be_reached_by_the_tab_key(paper):
    places = paper.page.evaluate(
        "[...document.querySelectorAll('main a, main select, main button:not(:disabled), main summary')]"
        ".filter(e => e.checkVisibility() && !e.closest('.plot')).map(e => e.tabIndex)"
    )
    assert len(places) > 10 and min(places) >= 0


def test_code_is_copied(paper):
    paper.page.get_by_role("button", name="Copy the code").click()
    paper.page.get_by_role("button", name="Copied").wait_for()
    assert "autolrs.Schedule(" in paper.page.evaluate("navigator.clipboard.readText()")


def test_figures_follow_a_change_of_the_colour_scheme(paper):
    paper.page.emulate_media(color_scheme="dark")
    # Not `wait_for_function`: it evaluates a string in the page, which the page's policy forbids.
    until = time.monotonic() + 60
    fill = "getComputedStyle(document.querySelector('.plot .xtick text')).fill"
    while paper.page.evaluate(fill) != "rgb(230, 237, 243)":
        assert time.monotonic() < until, "the figures stayed light"
        paper.page.wait_for_timeout(50)
    paper.page.emulate_media(color_scheme="light")


def test_text_of_users_stays_text(browser, pages):
    with Tab(browser) as tab:
        tab.open(pages["hostile"])
        assert tab.page.title() != "got" and tab.page.locator("img").count() == 0
        assert tab.page.locator("h1", has_text="</script><img").count() == 1


def test_a_million_steps_cost_the_browser_little_more_than_plotly_itself(browser, pages):
    """In the processor time of the page, so that a busy machine does not decide."""
    with Tab(browser) as tab:
        meter = tab.context.new_cdp_session(tab.page)
        meter.send("Performance.enable", {"timeDomain": "threadTicks"})
        tab.open(pages["long"])
        metrics = {entry["name"]: entry["value"] for entry in meter.send("Performance.getMetrics")["metrics"]}
        assert tab.complaints == []
        assert metrics["ThreadTime"] < 6.0  # 2.6 to 3.4 s on two slow cores, of which 1.9 s are Plotly itself


def test_a_served_page_follows_a_run_that_goes_on(browser, tmp_path):
    host = SimulatedHost(seed=1)
    session = Session(host, Settings(**SMALL), strategies.get("paper"), journal=Journal.create(tmp_path / "live"))
    drive(session, host, 230)
    server = ReportServer(tmp_path)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        with Tab(browser) as tab:
            tab.open(server.url + "run/live")
            assert "not finished" in tab.page.locator(".pill").text_content()
            drive(session, host)
            tab.page.wait_for_selector(".pill.good", timeout=90_000)
            tab.drawn()
            assert tab.complaints == []
            assert all(url.startswith((server.url, "data:", "blob:")) for url in tab.requests)
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)
