"""Recording series, and comparing forecasters on series whose answer is known."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("statsmodels")

from autolrs.bench import forecasting
from tiny_task import EXPLOSIVE, TINY


def one(lr, floor, seed=0, task="a"):
    t = np.arange(1, 101)
    return {
        "task": task, "profile": "cpu", "seed": seed, "lr": lr, "losses": (np.exp(-t / 20) + floor).tolist(),
    }  # fmt: skip


ORACLE = {"oracle": lambda losses, horizon: float(losses[-1] - math.exp(-0.5) + math.exp(-5.0))}
BACKWARDS = {"backwards": lambda losses, horizon: -float(losses[-1])}


def test_a_perfect_forecast_has_no_error_and_ranks_perfectly():
    series = [one(lr, floor) for lr, floor in ((0.1, 1.0), (0.2, 0.5), (0.3, 2.0))]
    (found,) = forecasting.compare(series, ORACLE)
    assert (found.series, found.rank) == (3, pytest.approx(1.0))
    assert found.error < 0.01 and found.squared < 1e-4
    assert forecasting.compare(series, BACKWARDS)[0].rank == pytest.approx(-1.0)


def test_ranks_are_within_a_task_and_seed():
    series = [one(lr, lr, seed) for seed in (0, 1) for lr in (1.0, 2.0, 3.0)]
    mixed = {"by seed": lambda losses, horizon: float(losses[-1])}
    assert forecasting.compare(series, mixed)[0].rank == pytest.approx(1.0)
    assert math.isnan(forecasting.compare(series[:2], mixed)[0].rank)  # two LRs make no rank


def test_diverged_and_short_series_are_left_out_and_none_left_is_an_error():
    bad = [{**one(0.1, 1.0), "losses": [1.0, None] * 50}, {**one(0.1, 1.0), "losses": [1.0] * 10}]
    assert forecasting.compare([*bad, one(0.2, 1.0)], ORACLE)[0].series == 1
    with pytest.raises(ValueError, match="nothing to compare"):
        forecasting.compare(bad, ORACLE)


def test_forecasters_are_listed_by_their_error():
    found = forecasting.compare([one(lr, lr) for lr in (1.0, 2.0, 3.0)], {**BACKWARDS, **ORACLE})
    assert [row.forecaster for row in found] == ["oracle", "backwards"]


def test_series_are_recorded_once_and_divergence_is_kept(tmp_path):
    out, said = tmp_path / "series.jsonl", []
    forecasting.record(out, TINY, 0, 20, said.append)
    rows = forecasting.read(out)
    assert len(rows) == len(said) == forecasting.LRS
    assert rows[0]["lr"] == pytest.approx(TINY.lr[0]) and rows[-1]["lr"] == pytest.approx(TINY.lr[1])
    assert {len(row["losses"]) for row in rows} == {20}
    assert len({row["losses"][0] for row in rows}) == 1  # the same weights, the same batch
    forecasting.record(out, TINY, 0, 20, said.append)
    assert len(forecasting.read(out)) == forecasting.LRS
    forecasting.record(out, EXPLOSIVE, 0, 5)
    assert forecasting.read(out)[-1]["losses"] == [None] * 5


@pytest.mark.parametrize("line", ["{", "[]", '{"task": "a"}', json.dumps({**one(1, 1), "losses": []})])
def test_a_line_that_is_no_series_is_named(tmp_path, line):
    path = tmp_path / "series.jsonl"
    path.write_text(json.dumps(one(1.0, 1.0)) + "\n" + line + "\n")
    with pytest.raises(ValueError, match=r"series\.jsonl, line 2"):
        forecasting.read(path)
