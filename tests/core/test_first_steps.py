"""How large the first steps of RAdam, RMSprop and Adagrad are beside their later ones."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autolrs.core.first_steps import in_run, rectified, uncorrected
from autolrs.core.settings import Settings


@given(beta=st.floats(0.0, 0.99999), step=st.floats(0.1, 1e7), more=st.floats(1.0, 10.0))
def test_rectified_steps_grow_up_to_those_of_adam(beta, step, more):
    first, later = rectified(step, beta), rectified(more * step, beta)
    assert 0 < first <= later * (1 + 1e-9) and later <= 1 + 1e-9


@pytest.mark.parametrize("beta", [0.9, 0.99, 0.999])
def test_in_the_end_they_are_as_large_and_at_first_much_smaller(beta):
    assert rectified(100 / (1 - beta), beta) == pytest.approx(1, abs=1e-3)
    assert rectified(1, beta) < 0.25
    assert math.isclose(in_run(9, Settings(rectified=beta)), rectified(3, beta))


@given(decay=st.floats(0.0, 1.0), step=st.floats(1.0, 1e7), more=st.floats(1.0, 10.0))
def test_uncorrected_steps_shrink(decay, step, more):
    first, later = uncorrected(step, decay), uncorrected(more * step, decay)
    assert 0 < later <= first * (1 + 1e-9) and first <= 1 + 1e-9


@pytest.mark.parametrize("decay", [0.0, 0.9, 0.99, 0.999])
def test_they_shrink_to_what_is_left_when_the_sum_of_squares_is_full(decay):
    assert uncorrected(1, decay) == 1
    assert uncorrected(100 / (1 - decay), decay) == pytest.approx((1 - decay) ** 0.5, rel=1e-3)


def test_those_of_a_sum_that_grows_for_ever_by_the_root_of_the_steps():
    assert uncorrected(400, 1.0) == pytest.approx(0.05) == pytest.approx(uncorrected(400, 1 - 1e-9), rel=1e-6)
    assert in_run(1200, Settings(uncorrected=1.0)) == pytest.approx(0.05)


@pytest.mark.parametrize("steps", [1, 2])
def test_a_run_of_a_step_or_two_is_judged_by_its_first(steps):
    assert in_run(steps, Settings(uncorrected=1.0)) == 1.0
    assert in_run(steps, Settings(rectified=0.999)) == rectified(1, 0.999)


def test_other_optimizers_have_theirs_from_the_beginning():
    assert in_run(20, Settings()) == in_run(10**6, Settings()) == 1.0
