"""That the measuring measures; whether the bars are met is for `autolrs bench overhead` on a quiet machine."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

from autolrs.bench import overhead


def test_a_row_is_within_its_bar_or_not():
    assert overhead.Row("a", 1.0, 3.0, "us", "", {}).within
    assert not overhead.Row("a", 4.0, 3.0, "us", "", {}).within


def test_things_are_measured_in_turn_and_the_first_round_does_not_count():
    calls = []
    times = overhead._in_turn({"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}, 3)
    assert calls == ["a", "b"] * 4
    assert {what: len(values) for what, values in times.items()} == {"a": 3, "b": 3}


def test_simulated_run_takes_its_host_out():
    row = overhead.simulated_row(1, 3000)
    assert 0 < row.value < 5 and row.raw["inside"] == [row.value]
    assert row.raw["host"][0] > 0 and "6,000 steps in all" in row.beside
