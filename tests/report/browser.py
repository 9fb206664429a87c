"""A real Chromium for tests, driven by Playwright; without either the tests are skipped and say why."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

ARGUMENTS = [
    *("--no-sandbox", "--disable-gpu", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync"),
]


@contextmanager
def chromium() -> Iterator[object]:
    """A headless browser."""
    playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright (pip install playwright)")
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    if program is None:
        pytest.skip("needs Chromium (Debian: apt-get install chromium)")
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=program, args=ARGUMENTS)
        yield browser
        browser.close()


class Tab:
    """A page that remembers what went wrong and what it asked for."""

    def __init__(self, browser, *, dark=False, width=1200, **options) -> None:
        scheme = "dark" if dark else "light"
        size = {"width": width, "height": 900}
        self.context = browser.new_context(color_scheme=scheme, viewport=size, reduced_motion="reduce", **options)
        self.page = self.context.new_page()
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self.page.on("console", lambda m: self.complaints.append(m.text) if m.type in ("error", "warning") else None)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))

    def open(self, address: str) -> None:
        self.page.goto(address, wait_until="commit")
        self.drawn()

    def drawn(self) -> None:
        self.page.wait_for_selector("html[data-drawn=all]", timeout=90_000, state="attached")

    def __enter__(self):
        return self

    def __exit__(self, *_: object) -> None:
        self.context.close()
