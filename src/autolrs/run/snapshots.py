"""Copies of a nested state (dictionaries, lists, tensors) into buffers that are kept and used again.

A run takes one snapshot a stage and restores it ten times: the first allocates, all others copy in place, so nothing is
allocated later, addresses stay, and the cost is that of a memory copy. What a tensor is and how it is copied comes from
the adapter.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from autolrs.run.host import Token

T = TypeVar("T")

_PLAIN = (int, float, str, bool, bytes, type(None))


class TreeCopier(Generic[T]):
    """Copies trees whose leaves are tensors of type `leaf`; other leaves are deep-copied."""

    def __init__(
        self,
        leaf: type[T],
        allocate: Callable[[T], T],
        fits: Callable[[T, T], bool],
        copy_all: Callable[[list[T], list[T]], None],
    ) -> None:
        """`copy_all(targets, sources)` copies in place; `fits(target, source)` says whether that is possible."""
        self._leaf, self._allocate, self._fits, self._copy_all = leaf, allocate, fits, copy_all

    def copy(self, source: Any, into: Any = None, allocate: Callable[[T], T] | None = None) -> Any:
        """`source`'s structure with copies of its tensors, written into those of `into` that stand there and fit.

        A tensor that stands in two places (tied weights) is copied once and stands in both places of the copy.
        """
        targets: list[T] = []
        sources: list[T] = []
        copies: dict[int, T] = {}
        used: set[int] = set()
        make = allocate or self._allocate

        def walk(source: Any, into: Any) -> Any:
            if isinstance(source, self._leaf):
                if id(source) in copies:
                    return copies[id(source)]
                fits = isinstance(into, self._leaf) and id(into) not in used and self._fits(into, source)
                target = copies[id(source)] = into if fits else make(source)
                used.add(id(target))  # two tensors must not both be written into one that stands in two places
                targets.append(target)
                sources.append(source)
                return target
            if isinstance(source, dict):
                old = into if isinstance(into, dict) else {}
                return {key: walk(value, old.get(key)) for key, value in source.items()}
            if isinstance(source, (list, tuple)) and type(source) in (list, tuple):
                olds = into if isinstance(into, (list, tuple)) and len(into) == len(source) else [None] * len(source)
                return type(source)(walk(value, old) for value, old in zip(source, olds, strict=True))
            return source if isinstance(source, _PLAIN) else copy.deepcopy(source)

        result = walk(source, into)
        self._copy_all(targets, sources)
        return result


class Slots:
    """Saved trees by token. A released tree's buffers serve the next one."""

    def __init__(self, copier: TreeCopier[Any]) -> None:
        self._copier = copier
        self._trees: dict[Token, Any] = {}
        self._free: list[Any] = []
        self._last = 0

    def save(self, tree: Any) -> Token:
        """Copy `tree`; returns its token."""
        into = self._free.pop() if self._free else None
        self._last += 1
        self._trees[self._last] = self._copier.copy(tree, into)
        return self._last

    def __getitem__(self, token: Token) -> Any:
        return self._trees[token]

    def release(self, token: Token) -> None:
        """Give a token's buffers back."""
        self._free.append(self._trees.pop(token))

    def put(self, token: Token, tree: Any) -> None:
        """A tree from elsewhere (a checkpoint) under its old token."""
        self._trees[token] = self._copier.copy(tree)
        self._last = max(self._last, token)

    def clear(self) -> None:
        """Forget everything."""
        self._trees, self._free = {}, []
