"""When a run has relapsed: by its levels, whatever their scale."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autolrs.core.divergence import RECENT, levels, relapsed

WELL = (2.3, 1.1, 0.7, 0.52, 0.41, 0.35, 0.31, 0.29, 0.272, 0.262, 0.268, 0.255, 0.26, 0.251, 0.249, 0.247, 0.25)


@given(scale=st.floats(1e-6, 1e6), offset=st.floats(-1e3, 1e3))
def test_neither_scale_nor_sign_of_the_loss_matters(scale, offset):
    moved = [scale * (level + offset) for level in WELL]
    assert not any(relapsed(moved[:end]) for end in range(len(moved) + 1))
    assert relapsed([*moved, scale * (2.0 + offset)])


@pytest.mark.parametrize("known", range(RECENT + 1))
def test_too_few_levels_say_nothing(known):
    assert not relapsed([2.3, *[0.5] * known][:RECENT])


@pytest.mark.parametrize(
    ("last", "why"),
    [(0.5, "less than a quarter of what was learned"), (-1e9, "it fell"), (0.25, "as before")],
)
def test_small_rises_and_falls_are_none(last, why):
    assert not relapsed([*WELL, last]), why


def test_what_has_learned_nothing_cannot_relapse():
    assert not relapsed([1.0, *[1.5] * RECENT, 400.0])


@pytest.mark.parametrize("freedom", [1.0, 1.5, 3.0])
def test_losses_that_differ_wildly_by_chance_are_not_taken_for_a_relapse(freedom):
    """Without a mean at the least: from batch to batch they reach a thousand times their usual size."""
    rng = np.random.default_rng(0)
    for _ in range(100):
        losses = np.geomspace(1.0, 0.05, 500) * (1.0 + np.abs(rng.standard_t(freedom, size=500)))
        seen = levels(losses.tolist(), 10)
        assert not any(relapsed(seen[:end]) for end in range(1, 51))


def test_a_few_hard_batches_do_not_show_in_a_level():
    losses = [0.3] * 30
    losses[4] = losses[13] = losses[21] = 1e9
    assert levels(losses, 10) == (0.3, 0.3, 0.3)
    assert levels(losses[:29], 10) == (0.3, 0.3)
