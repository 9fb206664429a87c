"""The training state of a parallel run after its last commit: a file that is replaced whole.

`state.bin` is one line of JSON (schema, how many events of the journal it stands for, size) and then the bytes that the
host dumped. Reading it runs no code.
"""

from __future__ import annotations

import json
from pathlib import Path

from autolrs.run.files import replace_whole

SCHEMA = 1
NAME = "state.bin"


def save_state(run_dir: Path, events: int, data: bytes) -> None:
    """Write the state that the run stands at after `events` events of its history."""
    header = {"autolrs_state": SCHEMA, "events": events, "size": len(data)}
    replace_whole(run_dir / NAME, lambda file: file.write(json.dumps(header).encode() + b"\n" + data))


def load_state(run_dir: Path) -> tuple[int, bytes] | None:
    """(events, data), or None where there is none."""
    path = run_dir / NAME
    if not path.exists():
        return None
    first, _, data = path.read_bytes().partition(b"\n")
    try:
        header = json.loads(first)
        schema, events, size = header["autolrs_state"], header["events"], header["size"]
    except (ValueError, KeyError, TypeError):
        raise ValueError(f"{path} is not a state of autolrs") from None
    if schema != SCHEMA:
        raise ValueError(f"{path} has schema {schema}; this autolrs reads {SCHEMA}")
    if size != len(data):
        raise ValueError(f"{path} is damaged: {len(data)} bytes of {size}")
    return events, data
