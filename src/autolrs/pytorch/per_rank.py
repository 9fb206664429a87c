"""What each rank has for itself in a state that rank 0 saves for all: random numbers, place in the data, losses."""

from __future__ import annotations

import base64
import io
from typing import Any

import torch

from autolrs.run.comm import Comm
from autolrs.run.replay import from_epoch_start


def gathered(state: dict[str, Any], comm: Comm) -> dict[str, Any]:
    """An `AutoLRS` state with every rank's own parts; called on all ranks at the same step."""
    if comm.size == 1:
        return state
    parts = {
        "rng": state["live"]["rng"],
        "snapshots": {token: tree["rng"] for token, tree in state["snapshots"].items()},
        "feed": state["feed"],
        "losses": {name: state["session"][name] for name in ("losses", "unread")},
    }
    everyone = comm.exchange(_encode(parts), "a checkpoint, for which every rank must call `state_dict`")
    return {**state, "by_rank": [_decode(text) for text in everyone]}


def own(state: dict[str, Any], comm: Comm, rng: Any) -> dict[str, Any]:
    """The state with this rank's own parts; on another number of ranks than before these begin anew, with `rng`."""
    if state.get("ranks", 1) != comm.size:
        feed = None if state["feed"] is None else from_epoch_start(state["feed"])
        parts = {"rng": rng, "snapshots": dict.fromkeys(state["snapshots"], rng), "feed": feed, "losses": {}}
    elif "by_rank" in state:
        parts = state["by_rank"][comm.rank]
    else:
        return state
    return {
        **state,
        "session": {**state["session"], **parts["losses"]},
        "live": {**state["live"], "rng": parts["rng"]},
        "snapshots": {token: {**tree, "rng": parts["snapshots"][token]} for token, tree in state["snapshots"].items()},
        "feed": parts["feed"],
    }


def _encode(parts: Any) -> str:
    buffer = io.BytesIO()
    torch.save(parts, buffer)
    return base64.b64encode(buffer.getvalue()).decode()


def _decode(text: str) -> Any:
    return torch.load(io.BytesIO(base64.b64decode(text)), weights_only=True)
