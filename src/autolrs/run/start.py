"""A session for a new run, or for one that its folder holds already: what the JAX and Keras adapters begin with."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy
import scipy

from autolrs.core import strategies
from autolrs.core.engine import Strategy, fold
from autolrs.core.settings import AVERAGING_DEFAULTS, Settings
from autolrs.run.files import check_same_run
from autolrs.run.host import Host
from autolrs.run.journal import NAME, Journal
from autolrs.run.session import Read, Session


def open_session(
    host: Host,
    strategy: str | Strategy,
    *,
    validation: bool,
    run_dir: str | Path | None,
    resume: bool,
    read: Read,
    versions: dict[str, str],
    known: Mapping[str, Any] = MappingProxyType({}),
    **values: Any,
) -> tuple[Session, bool]:
    """The session, not begun, and whether `run_dir` holds events of its run; those must be of the same settings.

    `known` are settings by the training and its length: of a run that goes on they stay what they were when it began,
    unless the user gives them.
    """
    chosen = strategies.get(strategy) if isinstance(strategy, str) else strategy
    settings = Settings.make(strategy=chosen.name, **{**known, **values})
    settings.check_evaluate(validation)
    journal, found = None, False
    if run_dir is not None and resume and (Path(run_dir) / NAME).is_file():
        journal, events = Journal.reopen(run_dir)
        if events:
            recorded = fold(events)
            remembered = {*known, *AVERAGING_DEFAULTS} - values.keys()  # the latter go by `averaging`
            given = {name: value for name, value in settings.to_dict().items() if name not in remembered}
            check_same_run(str(run_dir), recorded, given, validation)
            settings, found = recorded.settings, True
    elif run_dir is not None:
        if (Path(run_dir) / NAME).is_file():
            raise FileExistsError(f"{run_dir} already holds a run: give `resume=True`, or choose another `run_dir`")
        journal = Journal.create(run_dir)
    known = {"python": platform.python_version(), "numpy": numpy.__version__, "scipy": scipy.__version__}
    session = Session(
        host, settings, chosen, validation=validation, journal=journal, read=read, versions={**versions, **known}
    )
    return session, found
