"""Figures of a run for notebooks and scripts, by Plotly or matplotlib, whichever is installed; data from `figures`.

Every function takes a run as a folder, a journal file, a list of events, a `RunInfo`, or an `AutoLRS` with a `run_dir`.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any, Literal

from autolrs.report import plots, search_specs, specs
from autolrs.report.figures import posterior_info, probes_data, searched_stages, stage_of
from autolrs.report.info import RunInfo
from autolrs.report.load import RunLike, info_of
from autolrs.report.spec_parts import Spec
from autolrs.report.theme import LIGHT, resolve

Backend = Literal["auto", "plotly", "matplotlib"]


def plot_schedule(run: RunLike, *, backend: Backend = "auto") -> Any:
    """LR over committed steps, with every LR that was tried."""
    info = info_of(run)
    title = "Schedule and the LRs that were tried"
    return _drawn(backend, title, lambda: specs.schedule_spec(info), lambda axes: plots.draw_schedule(axes, info))


def plot_probes(run: RunLike, stage: int | None = None, *, backend: Backend = "auto") -> Any:
    """Losses of a stage's probes, smoothed, with their forecasts to the horizon; by default of the longest stage."""
    info = info_of(run)
    data = probes_data(info, _searched(info, stage))
    title = f"Probes of stage {data.stage}"
    return _drawn(backend, title, lambda: search_specs.probes_spec(data), lambda axes: plots.draw_probes(axes, data))


def plot_posterior(run: RunLike, stage: int | None = None, *, backend: Backend = "auto") -> Any:
    """Posterior mean and band over log LR, the explored points in their order, and the winner."""
    info = info_of(run)
    chosen = _searched(info, stage)
    data = posterior_info(info, chosen)
    if data is None:
        raise ValueError(f"stage {chosen} has no two probes that ended: there is no posterior to draw")
    title = f"What stage {chosen} knew about the LR"
    return _drawn(
        backend, title, lambda: search_specs.posterior_spec(data), lambda axes: plots.draw_posterior(axes, info, chosen)
    )


def plot_cost(run: RunLike, *, backend: Backend = "auto") -> Any:
    """Where the steps went."""
    info = info_of(run)
    return _drawn(
        backend, "Where the steps went", lambda: specs.cost_spec(info), lambda axes: plots.draw_cost(axes, info)
    )


def _searched(info: RunInfo, stage: int | None) -> int:
    stages = searched_stages(info)
    if not stages:
        raise ValueError("no stage of this run was searched: there are no probes to draw")
    if stage is None:
        return max(stages, key=lambda s: s.steps).index
    if not stage_of(info, stage).probes:
        known = ", ".join(str(s.index) for s in stages)
        raise ValueError(f"`stage` must be one that was searched ({known}), got {stage}")
    return stage


def _drawn(backend: Backend, title: str, spec: Callable[[], Spec], draw: Callable[[Any], None]) -> Any:
    """A Plotly figure of `spec`, or a matplotlib figure that `draw` drew into."""
    if _backend(backend) == "matplotlib":
        return plots.one_figure(draw)
    from plotly.graph_objects import Figure

    made = resolve(spec(), LIGHT)
    heading = {"text": title, "x": 0.02, "xanchor": "left"}
    layout = {**made["layout"], "title": heading, "paper_bgcolor": "white", "plot_bgcolor": "white"}
    return Figure(made["data"], {**layout, "margin": {**layout["margin"], "t": 100}, "height": layout["height"] + 80})


def _backend(wanted: Backend) -> str:
    if wanted not in ("auto", "plotly", "matplotlib"):
        raise ValueError(f"`backend` must be one of auto, plotly, matplotlib; got {wanted!r}")
    choices = ("plotly", "matplotlib") if wanted == "auto" else (wanted,)
    found = next((name for name in choices if find_spec(name) is not None), None)
    if found is None:
        raise ImportError(f"figures need {' or '.join(choices)}: pip install 'autolrs[report]'")
    return found
