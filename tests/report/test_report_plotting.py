"""The four figures for notebooks, by both libraries; what they show is tested on the data."""

from __future__ import annotations

import sys

import pytest
from simulated_events import events_of

from autolrs import report
from autolrs.report import figures
from autolrs.report.info import gather

FIGURES = [report.plot_schedule, report.plot_probes, report.plot_posterior, report.plot_cost]
RUNS = {
    "paper": {},
    "practical": {"preset": "practical", "lr": (1e-2, 50.0)},
    "validation": {"validation": True},
    "horizon": {"strategy": "horizon", "total_steps": 2000},
    "killed": {"steps": 230},
}


@pytest.fixture(scope="module", params=RUNS, ids=str)
def run(request):
    return gather(events_of(**RUNS[request.param]))


@pytest.mark.parametrize("plot", FIGURES)
def test_plotly_takes_every_figure(plot, run):
    plotly = pytest.importorskip("plotly.graph_objects")
    figure = plot(run, backend="plotly")  # Plotly refuses names and values it does not know
    assert isinstance(figure, plotly.Figure)
    assert len(figure.data) > 0 and figure.layout.title.text
    assert "@" not in figure.to_json().replace("@@", "")


@pytest.mark.parametrize("plot", FIGURES)
def test_matplotlib_draws_every_figure(plot, run, tmp_path):
    pytest.importorskip("matplotlib")
    plot(run, backend="matplotlib").savefig(tmp_path / "figure.png", dpi=50)
    assert (tmp_path / "figure.png").read_bytes().startswith(b"\x89PNG")


def test_the_figure_shows_the_data():
    pytest.importorskip("plotly")
    run = gather(events_of())
    data = figures.posterior_info(run, 1)
    traces = {trace.name: trace for trace in report.plot_posterior(run, 1, backend="plotly").data}
    assert list(traces["explored, in this order"].text) == ["1", "2", "3", "4", "5"]
    assert list(traces["explored, in this order"].x) == pytest.approx([lr for lr, _ in data.explored], rel=1e-5)
    assert traces[f"winner: {data.winner[0]:.3g}"].x[0] == pytest.approx(data.winner[0], rel=1e-5)
    line = next(t for t in report.plot_schedule(run, backend="plotly").data if t.name == "trained with")
    series = figures.schedule_series(run.schedule)
    assert list(line.y) == pytest.approx(series.lrs.tolist(), rel=1e-5)


def test_by_default_the_longest_stage_is_drawn():
    pytest.importorskip("plotly")
    assert "stage 2" in report.plot_probes(events_of()).layout.title.text


@pytest.mark.parametrize(
    ("missing", "kind"), [((), "plotly"), (("plotly",), "matplotlib"), (("plotly", "matplotlib"), None)]
)
def test_the_library_is_the_one_that_is_installed(missing, kind, monkeypatch):
    for name in missing:
        monkeypatch.setitem(sys.modules, name, None)
    if kind is None:
        with pytest.raises(ImportError, match=r"plotly or matplotlib: pip install 'autolrs\[report\]'"):
            report.plot_cost(events_of(steps=60))
    else:
        pytest.importorskip(kind)
        assert type(report.plot_cost(events_of(steps=60))).__module__.startswith(kind)


def test_wrong_arguments_are_named():
    run = gather(events_of())
    with pytest.raises(ValueError, match="got 'ggplot'"):
        report.plot_cost(run, backend="ggplot")
    with pytest.raises(ValueError, match="got 9"):
        report.plot_probes(run, 9)
    with pytest.raises(ValueError, match="searched"):
        report.plot_posterior(events_of(steps=3))
    with pytest.raises(TypeError, match="got int"):
        report.plot_cost(5)
    with pytest.raises(FileNotFoundError, match="nowhere does not exist"):
        report.plot_cost("nowhere")
