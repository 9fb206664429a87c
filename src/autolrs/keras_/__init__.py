"""Keras 3, on every backend: the `AutoLRS` callback."""

try:
    import keras  # noqa: F401 - asked for first, so that its absence is told in our words
except ModuleNotFoundError as error:
    if error.name != "keras":  # its backend is missing, which its own message says
        raise
    raise ImportError("autolrs.keras_ needs Keras 3: pip install 'autolrs[keras]'") from error

from autolrs.keras_.callback import AutoLRS
from autolrs.keras_.host import KerasHost

__all__ = ["AutoLRS", "KerasHost"]
