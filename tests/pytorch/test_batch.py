"""Parts of a batch: every example goes to exactly one rank."""

from collections import OrderedDict, namedtuple

import numpy as np
import pytest
import torch

from autolrs.pytorch.batch import part_of_batch

Pair = namedtuple("Pair", "x y")
X = torch.arange(12).reshape(6, 2)


def parts(batch, size):
    return [part_of_batch(batch, rank, size) for rank in range(size)]


@pytest.mark.parametrize("size", [2, 3, 6])
def test_parts_are_equal_and_together_the_batch(size):
    found = parts((X, X.numpy()), size)
    assert torch.equal(torch.cat([part[0] for part in found]), X)
    assert np.array_equal(np.concatenate([part[1] for part in found]), X.numpy())
    assert {len(part[0]) for part in found} == {6 // size}


def test_trees_keep_their_shape_and_what_has_no_examples_goes_to_all():
    batch = {"x": X, "more": [Pair(X, 3), None], "names": list("abcdef"), "weight": torch.tensor(0.5), "kind": "text"}
    first, second = parts(batch, 2)
    assert second["more"][0].x.tolist() == X[3:].tolist() and second["more"][0].y == 3
    assert isinstance(second["more"][0], Pair) and second["more"][1] is None
    assert (first["names"], second["names"]) == (list("abc"), list("def"))
    assert first["weight"] == second["weight"] == 0.5 and first["kind"] == "text"


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        ((X, X[:5]), "its tensors are of 5 and 6 examples; override `split`"),
        ([1, 2], "its tensors are without a dimension"),
        (X[:5], "a batch of 5 examples cannot be split equally on 2 workers: choose a batch size that 2 divides"),
        (OrderedDict(x=X), "a batch with a OrderedDict cannot be split: override `split`"),
    ],
    ids=["unequal", "no tensor", "odd", "strange"],
)
def test_what_cannot_be_split_is_said(batch, message):
    with pytest.raises(ValueError, match=message):
        part_of_batch(batch, 0, 2)
