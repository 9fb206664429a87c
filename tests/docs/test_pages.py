"""Every Python block of the README and the docs runs; generated pages are up to date; links lead somewhere."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


# Lightning's own use of a part of torch that is going away, and its advice for large machines.
@pytest.mark.filterwarnings("ignore:.isinstance.treespec, LeafSpec.. is deprecated:FutureWarning:lightning")
@pytest.mark.filterwarnings("ignore:The '.*_dataloader' does not have many workers::lightning")
# numpy 2 about how Keras itself converts torch's tensors.
@pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept a copy:DeprecationWarning:keras")
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_python_blocks_of_the_page_run(page, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
    scope: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, page.name, "exec"), scope)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_between_pages_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
        assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_settings_page_is_up_to_date():
    render = runpy.run_path(str(ROOT / "tools" / "settings_page.py"))["render"]
    assert (ROOT / "docs" / "settings.md").read_text() == render(), "run: python tools/settings_page.py"


def test_paper_table_names_files_that_exist():
    table = (ROOT / "README.md").read_text().split("## From the paper to the code")[1].split("\n\n")[1]
    files = re.findall(r"`((?:core|run|pytorch)/[\w/]+\.py)`", table)
    assert len(files) > 8
    for file in files:
        assert (ROOT / "src" / "autolrs" / file).exists(), file


def test_benchmarks_page_is_up_to_date():
    render = runpy.run_path(str(ROOT / "tools" / "benchmarks_page.py"))["render"]
    assert (ROOT / "docs" / "benchmarks.md").read_text() == render(), "run: python tools/benchmarks_page.py"
