import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autolrs.core.thinning import LIMIT, thin

values = st.lists(st.floats(-1e6, 1e6).map(lambda v: float(f"{v:.9g}")), max_size=600)


@given(values)
def test_few_values_are_all_kept_and_many_become_at_most_the_limit(series):
    thinned = thin(series)
    if len(series) <= LIMIT:
        assert thinned == tuple(series)
    else:
        assert len(thinned) <= LIMIT


@given(values.filter(bool))
def test_extremes_are_kept(series):
    thinned = thin(series, limit=10)
    assert (min(thinned), max(thinned)) == (min(series), max(series))


def test_order_is_kept_and_all_stretches_are_represented():
    thinned = thin(list(np.arange(10_000.0)))
    assert list(thinned) == sorted(thinned)
    assert max(np.diff(thinned)) < 2 * 10_000 / (LIMIT / 2)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_value_that_is_not_finite_stays_visible(bad):
    series = [1.0] * 1000
    series[567] = bad
    assert any(repr(value) == repr(bad) for value in thin(series))


def test_values_keep_nine_digits():
    assert thin([1.23456789012345]) == (1.23456789,)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@given(
    series=st.lists(st.floats(-1e6, 1e6).map(lambda v: float(f"{v:.9g}")), min_size=200, max_size=600), data=st.data()
)
def test_extremes_stay_beside_values_that_are_not_finite(bad, series, data):
    low, high = min(series), max(series)
    for place in data.draw(st.lists(st.integers(0, len(series) - 1), max_size=20)):
        series[place] = bad if series[place] not in (low, high) else series[place]
    thinned = thin(series)
    finite = [value for value in thinned if math.isfinite(value)]
    assert len(thinned) <= LIMIT
    assert (min(finite), max(finite)) == (low, high)
    assert len(finite) < len(thinned) or all(map(math.isfinite, series))
