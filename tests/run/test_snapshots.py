"""Trees of tensors copied into buffers that are used again, here with numpy arrays as tensors."""

import numpy as np
import pytest

from autolrs.run.snapshots import Slots, TreeCopier


def copy_all(targets, sources):
    for target, source in zip(targets, sources, strict=True):
        target[...] = source


def fits(target, source):
    return target.shape == source.shape and target.dtype == source.dtype


@pytest.fixture
def copier():
    return TreeCopier(np.ndarray, np.empty_like, fits, copy_all)


def tree(value=1.0):
    return {
        "a": np.full(3, value),
        "b": [np.full(2, value), {"c": np.full(1, value), "n": int(value)}],
        "t": (value, "x"),
    }


def test_a_copy_has_the_same_structure_and_its_own_tensors(copier):
    source = tree()
    copy = copier.copy(source)
    source["a"][:] = 9.0
    source["b"][1]["c"][:] = 9.0
    assert copy["a"].tolist() == [1, 1, 1] and copy["b"][1]["c"].tolist() == [1]
    assert copy["t"] == (1.0, "x") and type(copy["b"]) is list


def test_buffers_that_fit_are_written_into(copier):
    into = copier.copy(tree(1.0))
    copy = copier.copy(tree(2.0), into)
    assert copy["a"] is into["a"] and copy["b"][0] is into["b"][0] and copy["b"][1]["c"] is into["b"][1]["c"]
    assert copy["a"].tolist() == [2, 2, 2] and copy["b"][1]["n"] == 2


@pytest.mark.parametrize("other", [np.ones(4), np.ones(3, np.float32), "gone", None, {"a": np.ones(3)}])
def test_what_does_not_fit_is_allocated(copier, other):
    copy = copier.copy({"x": np.ones(3)}, {"x": other})
    assert copy["x"] is not other and copy["x"].tolist() == [1, 1, 1]


def test_what_the_source_does_not_have_is_gone(copier):
    assert copier.copy({"a": np.ones(1)}, {"a": np.ones(1), "b": np.ones(1)}).keys() == {"a"}
    assert len(copier.copy([np.ones(1)], [np.ones(1), np.ones(1)])) == 1


def test_a_tensor_in_two_places_is_copied_once_and_stays_one(copier):
    shared = np.ones(3)
    copy = copier.copy({"a": shared, "b": [shared]})
    assert copy["a"] is copy["b"][0]
    again = copier.copy(copy, {"a": np.zeros(3), "b": [np.zeros(3)]})
    assert again["a"] is again["b"][0]


def test_two_tensors_are_never_written_into_one(copier):
    shared = np.zeros(3)
    copy = copier.copy({"a": np.ones(3), "b": np.full(3, 2.0)}, {"a": shared, "b": shared})
    assert copy["a"].tolist() == [1, 1, 1] and copy["b"].tolist() == [2, 2, 2]


def test_other_objects_are_deep_copied(copier):
    source = {"set": {1, 2}, "list": [{3}]}
    copy = copier.copy(source)
    source["set"].add(9)
    source["list"][0].add(9)
    assert copy == {"set": {1, 2}, "list": [{3}]}


def test_another_way_to_allocate_can_be_given(copier):
    copy = copier.copy({"a": np.ones(2)}, allocate=lambda source: np.empty(2, np.float32))
    assert copy["a"].dtype == np.float32


def test_slots_keep_trees_apart(copier):
    slots = Slots(copier)
    live = tree(1.0)
    first = slots.save(live)
    live["a"][:] = 2.0
    second = slots.save(live)
    live["a"][:] = 3.0
    assert slots[first]["a"][0] == 1 and slots[second]["a"][0] == 2


def test_released_buffers_serve_the_next_tree_and_no_token_comes_twice(copier):
    slots = Slots(copier)
    first, kept = slots.save(tree(1.0)), slots.save(tree(2.0))
    buffer = slots[first]["a"]
    slots.release(first)
    third = slots.save(tree(3.0))
    assert third not in (first, kept)
    assert slots[third]["a"] is buffer
    assert slots[kept]["a"].tolist() == [2, 2, 2]
    with pytest.raises(KeyError):
        slots[first]
    with pytest.raises(KeyError):
        slots.release(first)


def test_a_tree_from_a_checkpoint_keeps_its_token_and_later_tokens_are_new(copier):
    slots = Slots(copier)
    given = tree(5.0)
    slots.put(7, given)
    given["a"][:] = 0.0
    assert slots[7]["a"][0] == 5
    assert slots.save(tree()) == 8
    slots.clear()
    assert slots.save(tree()) == 9
    with pytest.raises(KeyError):
        slots[7]
