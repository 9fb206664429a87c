"""Folders that truly cannot be written to for a while, also for root, who may otherwise write anywhere."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

_VERSION = 0x20080522  # of the kernel's structures for capabilities
_DAC_OVERRIDE = 1 << 1  # the right to pass over permissions


@contextmanager
def read_only(folder: Path) -> Iterator[None]:
    """Nobody may write into `folder` or its files; reading goes on."""
    paths = [*folder.iterdir(), folder]
    modes = [path.stat().st_mode for path in paths]
    for path, mode in zip(paths, modes, strict=True):
        path.chmod(mode & ~0o222)
    try:
        with _bound_by_permissions():
            with pytest.raises(PermissionError):
                (folder / "new").touch()
            yield
    finally:
        for path, mode in zip(paths, modes, strict=True):
            path.chmod(mode)


@contextmanager
def moved_away(folder: Path) -> Iterator[None]:
    """A file stands in the place of `folder`, as when a disk was taken out; afterwards it is back."""
    elsewhere = folder.with_name("elsewhere")
    folder.rename(elsewhere)
    folder.touch()
    try:
        yield
    finally:
        folder.unlink()
        elsewhere.rename(folder)


@contextmanager
def _bound_by_permissions() -> Iterator[None]:
    """Take the right to pass over permissions from this thread, if it has that; it may take it back."""
    if os.geteuid():
        yield
        return
    if not sys.platform.startswith("linux"):
        pytest.skip("root is bound by no permissions here")
    libc = ctypes.CDLL(None, use_errno=True)
    header, data = (ctypes.c_uint32 * 2)(_VERSION, 0), (ctypes.c_uint32 * 6)()
    assert libc.capget(header, data) == 0, os.strerror(ctypes.get_errno())
    effective = data[0]
    data[0] = effective & ~_DAC_OVERRIDE
    assert libc.capset(header, data) == 0, os.strerror(ctypes.get_errno())
    try:
        yield
    finally:
        data[0] = effective
        assert libc.capset(header, data) == 0, os.strerror(ctypes.get_errno())
