"""The documentation site builds without a warning, the promises name tests that exist, and the notebook runs."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def test_the_site_builds_strictly(tmp_path):
    pytest.importorskip("mkdocs")
    pytest.importorskip("mkdocstrings")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path / "site")]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=280)
    assert built.returncode == 0, built.stdout + built.stderr
    api = (tmp_path / "site" / "api.html").read_text()
    for name in ("autolrs.AutoLRS", "autolrs.resume", "autolrs.core.forecast.forecast"):
        assert f'id="{name}"' in api


def test_every_page_is_in_the_navigation():
    listed = set(re.findall(r"([\w-]+\.md)", (ROOT / "mkdocs.yml").read_text()))
    assert listed == {page.name for page in (ROOT / "docs").glob("*.md")}


def test_every_promise_names_a_test_that_exists():
    rows = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", (ROOT / "docs" / "reliability.md").read_text())
    assert len(rows) > 15
    for file, name in rows:
        assert re.search(rf"^def {name}\(", (ROOT / file).read_text(), re.MULTILINE), f"{file}::{name}"


@pytest.mark.slow
def test_the_notebook_runs(tmp_path):
    pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    program = (
        "import nbformat, nbclient, sys\n"
        "notebook = nbformat.read(sys.argv[1], as_version=4)\n"
        "nbclient.NotebookClient(notebook, timeout=240).execute()\n"
        "print(sum(bool(cell.outputs) for cell in notebook.cells if cell.cell_type == 'code'))\n"
    )
    command = [sys.executable, "-W", "ignore", "-c", program, str(ROOT / "examples" / "tour.ipynb")]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=290)
    assert run.returncode == 0, run.stderr[-3000:]
    assert int(run.stdout.split()[-1]) >= 6
