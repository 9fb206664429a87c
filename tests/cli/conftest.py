"""Fixtures of the command tests."""

from __future__ import annotations

from pathlib import Path

import pytest
from simulated_run import make_run
from typer.testing import CliRunner


@pytest.fixture
def run_folder(tmp_path: Path) -> Path:
    make_run(tmp_path / "run")
    return tmp_path / "run"


@pytest.fixture
def cli():
    """`cli("show", folder)` -> result with stdout, stderr and exit_code, in this process."""
    from autolrs.cli.app import app

    def invoke(*arguments):
        return CliRunner().invoke(app, [str(argument) for argument in arguments], catch_exceptions=False)

    return invoke
