"""The arithmetic from miniature runs' losses to the peak; whole searches are in `test_horizon.py`."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autolrs.core.settings import Settings
from autolrs.core.strategies.horizon_peak import DESCENTS, centre, correction, shortfalls, weights

LOSSES = st.dictionaries(st.integers(-8, 4), st.floats(0.01, 10.0), min_size=1, max_size=7)


@given(LOSSES, st.floats(10.0, 100.0), st.floats(1e-3, 1e3), st.floats(-50.0, 50.0))
def test_shares_add_up_and_the_centre_lies_among_the_octaves_whatever_the_scale(losses, start, scale, offset):
    short = shortfalls(losses, start)
    assert min(short.values()) == 0.0 and sum(weights(short).values()) == pytest.approx(1.0)
    assert min(losses) - 1e-9 <= centre(short) <= max(losses) + 1e-9
    moved = shortfalls({octave: scale * loss + offset for octave, loss in losses.items()}, scale * start + offset)
    assert moved == pytest.approx(short, abs=1e-6)


def test_of_equals_the_centre_is_the_middle_and_of_one_clear_winner_it_is_that_one():
    assert centre(shortfalls({-4: 1.0, -3: 1.0, -2: 1.0}, 2.0)) == pytest.approx(-3.0)
    assert centre(shortfalls({-4: 1.5, -3: 1.0, -2: 1.5}, 2.0)) == pytest.approx(-3.0)
    assert centre(shortfalls({-4: 1.5, -3: 1.5, -2: 1.0}, 2.0)) == pytest.approx(-2.0, abs=1e-6)


def test_a_run_that_was_stopped_has_no_share_and_if_all_were_nobody_has():
    short = shortfalls({-3: 1.0, -2: math.inf}, 2.0)
    assert weights(short) == {-3: 1.0, -2: 0.0} and centre(short) == -3.0
    assert weights(shortfalls({-3: math.inf, -2: math.inf}, 2.0)) == {-3: 0.0, -2: 0.0}
    assert shortfalls({}, 2.0) == {}


@pytest.mark.parametrize(("averaging", "usual"), [(True, 0.9), (False, 1.1)])
def test_a_usual_task_gets_the_setting_and_short_runs_a_little_more(averaging, usual):
    best = math.exp(-DESCENTS[1])
    for total, more in ((5000, 0.0), (1050, 0.0), (1000, 0.1), (500, 0.1)):
        config = Settings.make(strategy="horizon", total_steps=total, averaging=averaging)
        assert correction(config, 1.0, best) == pytest.approx(usual + more)
