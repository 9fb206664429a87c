from __future__ import annotations

import math

import pytest

pytest.importorskip("torch")

from autolrs.bench.score import Score
from autolrs.bench.tables import headline


def cells(text, method, occurrence=0):
    lines = [line for line in text.splitlines() if line.startswith(f"| {method} |")]
    return [cell.strip() for cell in lines[occurrence].strip("|").split("|")]


GOOD = Score("a", "horizon", 5, 0.12345, 0.001, 1.02, 1.13, 1.5, 1.2)
BETTER = Score("a", "cosine", 5, 0.121, 0.002, 1.0, 1.0, 1.0, 1.0)
DIVERGED = Score("a", "constant", 5, math.inf, math.nan, math.inf, 1.0, 0.0, 0.0)
LONE = Score("b", "horizon", 1, 0.5, math.nan, math.nan, 1.2, math.nan, math.nan)


def test_methods_are_listed_from_the_lowest_loss_to_the_diverged():
    text = headline([DIVERGED, GOOD, BETTER])
    first = text.split("### Over tasks")[0]
    assert [first.index(f"| {name} |") for name in ("cosine", "horizon", "constant")] == sorted(
        first.index(f"| {name} |") for name in ("cosine", "horizon", "constant")
    )


def test_a_row_shows_loss_spread_ratio_cost_and_speedups():
    text = headline([GOOD, BETTER])
    assert cells(text, "horizon") == ["horizon", "0.1235", "±0.0010 (5)", "1.020", "1.13", "1.50", "1.20"]
    assert cells(text, "horizon", 1) == ["horizon", "1", "1.020", "1.020", "1.13"]


def test_divergence_is_said_in_words():
    text = headline([DIVERGED, BETTER])
    expected = ["constant", "diverged", "(5)", "inf", "1.00", "not reached", "not reached"]
    assert cells(text, "constant") == expected
    assert cells(text, "constant", 1) == ["constant", "1", "inf", "inf", "1.00"]


def test_what_has_no_comparison_is_a_dash_and_comes_last():
    text = headline([LONE, *(one._replace(task="a") for one in (BETTER, DIVERGED))])
    assert cells(text, "horizon") == ["horizon", "0.5000", "(1)", "-", "1.20", "-", "-"]
    assert cells(text, "horizon", 1) == ["horizon", "0", "-", "-", "1.20"]
    assert text.rstrip().splitlines()[-1].startswith("| horizon |")


def test_every_table_is_markdown_of_even_width():
    text = headline([GOOD, BETTER, LONE])
    assert text.count("### ") == 3 and text.endswith("|\n")
    tables = [block.splitlines() for block in text.split("\n\n") if block.startswith("|")]
    assert len(tables) == 3
    for lines in tables:
        assert len({line.count("|") for line in lines}) == 1
        assert set(lines[1]) == {"|", "-"}
