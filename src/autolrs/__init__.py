"""autolrs finds the learning-rate schedule while a network trains."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from autolrs.core.schedule import Schedule
from autolrs.core.settings import Settings
from autolrs.core.types import Segment
from autolrs.run.steps import StepInfo

if TYPE_CHECKING:
    from autolrs.pytorch.auto import AutoLRS
    from autolrs.pytorch.range_test import range_test
    from autolrs.pytorch.resume import resume

__version__ = "0.1.0"
__all__ = ["AutoLRS", "Schedule", "Segment", "Settings", "StepInfo", "__version__", "range_test", "resume"]

_TORCH = {"AutoLRS": "auto", "resume": "resume", "range_test": "range_test"}


def __getattr__(name: str) -> Any:
    """Load the PyTorch adapter when it is first asked for, so that the core needs numpy and scipy alone."""
    if name in _TORCH:
        from importlib import import_module

        try:
            module = import_module(f"autolrs.pytorch.{_TORCH[name]}")
        except ModuleNotFoundError as error:
            if error.name != "torch":
                raise
            raise ImportError(f"autolrs.{name} needs PyTorch: pip install 'autolrs[torch]'") from error
        return getattr(module, name)
    raise AttributeError(f"module 'autolrs' has no attribute {name!r}")
