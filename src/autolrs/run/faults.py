"""What is said, or raised, once training broke so often that its strategy no longer has it undone."""

from __future__ import annotations

import math

from autolrs.core.engine import State
from autolrs.core.types import Command, Commit


class NotFiniteError(ValueError):
    """The loss is not finite before the first update. Whoever steps on all the same goes to the end of the run."""


def given_up(state: State, command: Command | None, first: float) -> str:
    """What to say of `command`, which follows a stretch that broke; empty where what breaks is still undone.

    `first` is the first loss of such a stretch or, before anything was committed, of a probe: where that is not finite,
    it is one of the untouched model, and no LR can mend it.
    """
    if not (state.failures and isinstance(command, Commit) and not command.guarded):
        return ""
    often = f"training broke {state.all_failures} times"
    if not state.committed_steps and not math.isfinite(first):
        raise NotFiniteError(
            f"the loss is {first} before the first update of the model, so no learning rate can mend it ({often}): "
            "look at the data, the model and the loss"
        )
    return f"{often}: the LR is not what does it, so from step {state.committed_steps} on nothing is undone"
