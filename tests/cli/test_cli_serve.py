"""`autolrs serve` as a process; what the server answers is tested in `tests/report/test_report_server.py`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import urllib.request
from functools import partial
from pathlib import Path

import pytest

import autolrs

pytest.importorskip("plotly")


def test_it_says_where_it_serves_and_ends_at_ctrl_c(run_folder):
    environment = {**os.environ, "PYTHONPATH": str(Path(autolrs.__file__).parents[1])}
    command = [sys.executable, "-u", "-m", "autolrs.cli", "serve", str(run_folder), "--port", "0"]
    # Whatever started the tests may ignore SIGINT, as a shell does for what it puts in the background: it is inherited.
    heeding = partial(signal.signal, signal.SIGINT, signal.default_int_handler)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment, preexec_fn=heeding) as process:
        try:
            line = process.stdout.readline()
            address = next(word for word in line.split() if word.startswith("http://127.0.0.1:"))
            with urllib.request.urlopen(address, timeout=30) as answer:
                assert b"autolrs report" in answer.read()
            process.send_signal(signal.SIGINT)
            assert process.wait(30) == 0
            assert "stopped" in process.stdout.read()
        finally:
            process.kill()


def test_what_is_not_there_cannot_be_served(cli, tmp_path):
    result = cli("serve", tmp_path / "nothing")
    assert result.exit_code == 1 and "does not exist" in result.stderr
    (tmp_path / "file").write_text("")
    result = cli("serve", tmp_path / "file")
    assert result.exit_code == 1 and "is not a folder" in result.stderr
