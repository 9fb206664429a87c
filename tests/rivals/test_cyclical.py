"""The cyclical schedules against Smith's equations."""

from __future__ import annotations

import math

import pytest

torch = pytest.importorskip("torch")

from autolrs.rivals import cyclical  # noqa: E402 - torch may be missing
from autolrs.rivals.schedules import sgdr  # noqa: E402

TOTAL, LOW, HIGH = 240, 0.01, 0.25


def lrs(make, *arguments, total=TOTAL):
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=7.0, momentum=0.9)
    scheduler = make(optimizer, *arguments)
    rows = []
    for _ in range(total + 1):
        rows.append(optimizer.param_groups[0]["lr"])
        assert optimizer.param_groups[0]["momentum"] == 0.9
        optimizer.step()
        if len(rows) <= total:
            scheduler.step()
    return rows


def triangle(step, half):
    """(the cycle, counted from 0; height in it, 0 to 1)."""
    cycle, within = divmod(step, 2 * half)
    return cycle, 1 - abs(within / half - 1)


@pytest.mark.parametrize("cycles", [1, 2, 4])
def test_triangular2_halves_its_height_every_cycle(cycles):
    found, half = lrs(cyclical.triangular2, (LOW, HIGH), TOTAL, cycles), TOTAL // (2 * cycles)
    for step in range(TOTAL):
        cycle, height = triangle(step, half)
        assert found[step] == pytest.approx(LOW + (HIGH - LOW) * height / 2**cycle), step


@pytest.mark.parametrize("cycles", [2, 4])
def test_exp_range_shrinks_its_height_every_step_to_a_tenth_at_the_end(cycles):
    found, half = lrs(cyclical.exp_range, (LOW, HIGH), TOTAL, cycles), TOTAL // (2 * cycles)
    for step in range(TOTAL):
        height = triangle(step, half)[1] * 0.1 ** (step / TOTAL)
        assert found[step] == pytest.approx(LOW + (HIGH - LOW) * height), step


def test_1cycle_is_one_triangle_and_then_a_fall_far_below_its_foot():
    found = lrs(cyclical.one_triangle, (LOW, HIGH), TOTAL)
    top = 0.45 * (TOTAL + 1) - 1
    foot = 2 * top
    for step in (0, 1, 50, 107, 108, 150, 214, 215, 216, 230, TOTAL):
        if step <= foot:
            expected = LOW + (HIGH - LOW) * (1 - abs(step / top - 1))
        else:
            expected = LOW * (1 - (1 - 1e-4) * (step - foot) / (TOTAL - foot))
        assert found[step] == pytest.approx(expected, rel=1e-6), step


@pytest.mark.parametrize("cycles", [1, 2, 3])
def test_sgdr_is_half_cosines_each_twice_as_long(cycles):
    first = math.ceil(TOTAL / (2**cycles - 1))
    found = lrs(sgdr, HIGH, TOTAL, cycles)
    starts = [first * (2**i - 1) for i in range(cycles)]
    for step in range(TOTAL):
        i = max(i for i, start in enumerate(starts) if start <= step)
        expected = HIGH / 2 * (1 + math.cos(math.pi * (step - starts[i]) / (first * 2**i)))
        assert found[step] == pytest.approx(expected, abs=1e-12), step
    assert found[:TOTAL].count(HIGH) == cycles
