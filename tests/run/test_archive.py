"""Nested plain values and arrays go into one file and come back; what cannot is refused, and a full disk only warns."""

import math

import ml_dtypes
import numpy as np
import pytest

from autolrs.run import archive

TREE = {
    "weights": [np.arange(6, dtype="float32").reshape(2, 3), np.array(1.5, ml_dtypes.bfloat16)],
    "places": {0: None, 3: "x"},
    "numbers": [1, 0.1, math.inf, True],
    "empty": np.zeros((0, 2), "int64"),
}


def test_a_tree_comes_back_as_it_was(tmp_path):
    archive.save(tmp_path / "a.npz", TREE)
    again = archive.load(tmp_path / "a.npz")
    assert again["places"] == TREE["places"] and again["numbers"] == TREE["numbers"]
    for a, b in zip([*again["weights"], again["empty"]], [*TREE["weights"], TREE["empty"]], strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape and np.array_equal(a, b)
    assert [path.name for path in tmp_path.iterdir()] == ["a.npz"]


def test_what_is_neither_plain_nor_an_array_is_refused():
    with pytest.raises(TypeError, match="arrays and plain values can be saved, got set"):
        archive.pack({"a": {1, 2}})


@pytest.mark.parametrize("content", [b"", b"hello", b"PK\x03\x04"])
def test_a_foreign_file_is_a_clear_error_and_runs_no_code(tmp_path, content):
    (tmp_path / "a.npz").write_bytes(content)
    with pytest.raises(ValueError, match=r"a\.npz is not a whole checkpoint"):
        archive.load(tmp_path / "a.npz")
    np.savez(tmp_path / "b.npz", plain=np.array([object()], dtype=object))
    with pytest.raises(ValueError, match="not a whole checkpoint"):
        archive.load(tmp_path / "b.npz")


def test_a_full_disk_warns_and_keeps_the_old_file(tmp_path):
    archive.save(tmp_path / "a.npz", {"a": 1})
    (tmp_path / "a.npz.partial").symlink_to("/dev/full")
    with pytest.warns(RuntimeWarning, match="cannot write"):
        archive.save(tmp_path / "a.npz", {"a": np.zeros(10**6)})
    assert archive.load(tmp_path / "a.npz") == {"a": 1}
