"""Tables by name, each a function of rows; `forecasters` takes loss series instead."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from autolrs.bench.score import Row, score
from autolrs.bench.tables import paper
from autolrs.bench.tables._table import FORMATS, Table
from autolrs.bench.tables.headline import differences, headline, headline_tables, profiles

TABLES: dict[str, Callable[[Iterable[Row]], list[Table]]] = {
    "headline": lambda rows: headline_tables(score(rows)),
    "profiles": profiles,
    "paired": differences,
    "methods": paper.methods,
    "tau-max": paper.tau_max,
    "random-search": paper.random_search,
    "grid-search": paper.grid_search,
    "ablation": paper.ablation,
    "hypergradient": paper.hypergradient,
    "variability": paper.variability,
    "fine-tuning": paper.fine_tuning,
}

__all__ = ["FORMATS", "TABLES", "Table", "headline"]
