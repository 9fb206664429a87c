"""What is drawn, and that it is drawn."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

from autolrs.bench.plots import curves, draw


def row(method, seed, lrs, task="a", curve=((4, 0.5),)):
    return {"task": task, "method": method, "phase": "report", "seed": seed, "lrs": lrs, "losses": [], "curve": curve}


def test_curves_are_medians_where_all_seeds_have_a_value():
    rows = [row("x", 0, [[1, 1.0], [2, 2.0]]), row("x", 1, [[1, 3.0], [2, None]]), row("x", 2, [[1, 5.0], [2, 2.0]])]
    assert curves(rows) == {"a": {"lrs": {"x": [(1, 3.0)]}, "curve": {"x": [(4, 0.5)]}}}


def test_rows_without_traces_and_tuning_rows_draw_what_they_have(tmp_path):
    pytest.importorskip("matplotlib")
    old = {key: value for key, value in row("y", 0, []).items() if key not in ("lrs", "losses")}
    rows = [row("x", 0, [[1, 0.1], [2, 0.0]]), old, {**old, "phase": "tune", "task": "b"}]
    (made,) = draw([{**one, "profile": "smoke"} for one in rows], tmp_path / "deep")
    assert made.name == "a-smoke.png" and made.stat().st_size > 10_000
