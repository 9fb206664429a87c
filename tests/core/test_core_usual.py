"""What is usual of a network, by the sizes of its layers alone."""

import math

from hypothesis import given
from hypothesis import strategies as st

from autolrs.core.usual import of_window, usual_lr

SIZES = st.lists(st.integers(1, 10_000), min_size=1, max_size=20)


@given(SIZES, st.integers(1, 100))
def test_layers_so_many_times_as_wide_want_so_much_less(inputs, times):
    assert math.isclose(usual_lr(inputs) / usual_lr([times * size for size in inputs]), times, rel_tol=0.01)


@given(SIZES)
def test_it_lies_between_what_the_widest_and_the_narrowest_layer_want(inputs):
    assert 0.99 * usual_lr([max(inputs)]) <= usual_lr(inputs) <= 1.01 * usual_lr([min(inputs)])


def test_layers_without_inputs_are_none():
    assert usual_lr([0]) is None and usual_lr([32, 0]) == usual_lr([32])


def test_a_window_of_one_place_is_a_linear_layer():
    assert of_window(16, 1) == 16 and of_window(16, 25) == 80
