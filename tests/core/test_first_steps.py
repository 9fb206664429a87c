"""How large RAdam's steps are beside Adam's."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autolrs.core.rectified import in_run, size


@given(beta=st.floats(0.0, 0.99999), step=st.floats(0.1, 1e7), more=st.floats(1.0, 10.0))
def test_steps_grow_up_to_those_of_adam(beta, step, more):
    first, later = size(step, beta), size(more * step, beta)
    assert 0 < first <= later * (1 + 1e-9) and later <= 1 + 1e-9


@pytest.mark.parametrize("beta", [0.9, 0.99, 0.999])
def test_in_the_end_they_are_as_large_and_at_first_much_smaller(beta):
    assert size(100 / (1 - beta), beta) == pytest.approx(1, abs=1e-3)
    assert size(1, beta) < 0.25 and math.isclose(in_run(9, beta), size(3, beta))


def test_other_optimizers_have_theirs_from_the_beginning():
    assert in_run(20, None) == in_run(10**6, None) == 1.0
