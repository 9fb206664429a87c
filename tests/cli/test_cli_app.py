"""The `autolrs` script as a process: version, help, exit codes, and what it says when an extra is missing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import autolrs

SOURCE = Path(autolrs.__file__).parents[1]
BENCH = [["bench", command] for command in ("overhead", "list", "run", "table")]
COMMANDS = [["demo"], ["show"], ["report"], ["serve"], ["export"], ["range-test"], ["doctor"], ["bench"], *BENCH]


def run(*arguments: str, code: str = "from autolrs.cli import main; main()") -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    program = f"import sys; sys.argv = ['autolrs', *sys.argv[1:]]; {code}"
    return subprocess.run(
        [sys.executable, "-c", program, *arguments], capture_output=True, text=True, env=environment, timeout=120
    )


def test_version():
    result = run("--version")
    assert (result.returncode, result.stdout.strip()) == (0, f"autolrs {autolrs.__version__}")


def test_a_failure_is_one_line_on_stderr_and_exit_code_1(tmp_path):
    result = run("show", str(tmp_path / "nothing"))
    assert result.returncode == 1
    assert result.stdout == ""
    assert len(result.stderr.strip().splitlines()) == 1
    assert "does not exist" in result.stderr


def test_wrong_usage_is_exit_code_2():
    assert run("export", "somewhere", "--to", "excel").returncode == 2


@pytest.mark.parametrize("missing", ["typer", "rich"])
def test_without_the_extra_it_says_which_one_to_install(missing):
    code = f"sys.modules['{missing}'] = None; from autolrs.cli import main; main()"
    result = run("--version", code=code)
    assert result.returncode == 1
    assert "autolrs[cli]" in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_help_has_examples(cli, command):
    result = cli(*command, "--help")
    assert result.exit_code == 0
    assert "Examples:" in result.stdout
    assert "autolrs " + command[0] in result.stdout


def test_importing_the_command_line_does_not_import_torch():
    result = run(code="import autolrs.cli.app; print('torch' in sys.modules)")
    assert result.stdout.strip() == "False", result.stderr
