"""What a run looks like. `info` gathers data from its events, `figures` computes series, the rest draws them.

`plot_schedule`, `plot_probes`, `plot_posterior` and `plot_cost` are for notebooks and scripts; the page is `page`.
"""

from autolrs.report.plotting import plot_cost, plot_posterior, plot_probes, plot_schedule

__all__ = ["plot_cost", "plot_posterior", "plot_probes", "plot_schedule"]
