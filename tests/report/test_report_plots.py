"""That pictures are drawn for every shape of run; what they show is tested on the data in `test_report_info.py`."""

from __future__ import annotations

import sys

import pytest
from simulated_events import events_of

from autolrs.report.info import gather
from autolrs.report.plots import range_picture, run_picture

pytest.importorskip("matplotlib")


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"preset": "practical"},
        {"warmup_steps": 50},
        {"steps": 5},
        {"steps": 130},
        {"lr": (1e-2, 50.0), "abort_diverged": True},
        {"strategy": "horizon"},
    ],
    ids=str,
)
def test_every_run_has_a_picture(tmp_path, settings):
    path = tmp_path / "run.png"
    run_picture(gather(events_of(**settings)), path, title="a run")
    assert path.read_bytes().startswith(b"\x89PNG")


def test_the_file_name_chooses_the_format(tmp_path):
    path = tmp_path / "run.svg"
    run_picture(gather(events_of()), path)
    assert "<svg" in path.read_text()


def test_range_picture_survives_losses_that_are_not_finite(tmp_path):
    path = tmp_path / "range.png"
    range_picture([1e-3, 1e-2, 1e-1], [1.0, 0.5, float("nan")], (1e-3, 1e-2), path)
    assert path.exists()


def test_without_matplotlib_the_extra_is_named(tmp_path, monkeypatch):
    for name in ("matplotlib", "matplotlib.backends.backend_agg", "matplotlib.figure"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ImportError, match=r"autolrs\[report\]"):
        run_picture(gather(events_of()), tmp_path / "run.png")
