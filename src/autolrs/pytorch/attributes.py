"""What modules keep in plain attributes (counters, lists of outputs, states of metrics, modes), to put it back later.

Frameworks with modules that log and gather need this; parameters, buffers and hooks are not touched.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

_NOT_OURS = vars(nn.Module()).keys() - {"training"}


class Attributes:
    """The attributes of a module and its submodules as they are now.

    Numbers, strings, tensors and the usual containers of them are remembered by value, other objects by reference.
    """

    def __init__(self, root: nn.Module) -> None:
        self._modules = [
            (module, {name: _remember(value) for name, value in vars(module).items() if name not in _NOT_OURS})
            for module in root.modules()
        ]

    @torch.no_grad()
    def restore(self) -> None:
        """Put them back, as often as need be; new ones are removed, containers and tensors keep their identity."""
        for module, attributes in self._modules:
            present = vars(module)
            for name in present.keys() - attributes.keys() - _NOT_OURS:
                del present[name]
            present.update((name, back()) for name, back in attributes.items())


def _remember(value: Any) -> Callable[[], Any]:
    """A function that gives `value` back as it is now."""
    kind = type(value)
    # A tensor with a graph cannot be written into, and belongs to a step that is over.
    if kind is Tensor and not value.requires_grad and not value.is_inference():
        copied = value.clone()
        return lambda: value.copy_(copied)
    if kind in (list, tuple, set, deque):
        items = [_remember(item) for item in value]
        return lambda: _refill(value, [item() for item in items])
    if kind in (dict, OrderedDict, defaultdict, Counter):
        pairs = {key: _remember(item) for key, item in value.items()}
        return lambda: _refill(value, {key: item() for key, item in pairs.items()})
    return lambda: value


def _refill(container: Any, content: Any) -> Any:
    if isinstance(container, tuple):
        return tuple(content)
    container.clear()
    (container.extend if hasattr(container, "extend") else container.update)(content)
    return container
