"""JAX, with Optax and Flax: `fit` for the plain loop, `AutoLRS` for a loop of your own, `lr_setter` for Optax."""

try:
    import jax  # noqa: F401 - asked for first, so that its absence is told in our words
except ImportError as error:
    raise ImportError("autolrs.jax_ needs JAX: pip install 'autolrs[jax]'") from error

from autolrs.jax_.auto import NAME, AutoLRS, fit
from autolrs.jax_.host import JaxHost
from autolrs.jax_.hyperparams import lr_setter

__all__ = ["NAME", "AutoLRS", "JaxHost", "fit", "lr_setter"]
