"""A table of strings, and its three forms: aligned text, Markdown, CSV."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean, stdev


@dataclass(frozen=True)
class Table:
    """`title` may be followed by a `note` on what is beside what."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""


def markdown(tables: Sequence[Table]) -> str:
    """One heading and one table each."""
    lines: list[str] = []
    for table in tables:
        lines += [f"### {table.title}", ""]
        lines += [table.note, ""] if table.note else []
        lines += [_row(table.columns), "|" + "---|" * len(table.columns), *map(_row, table.rows), ""]
    return "\n".join(lines[:-1]) + "\n"


def text(tables: Sequence[Table]) -> str:
    """Columns aligned for a terminal."""
    blocks = []
    for table in tables:
        rows = [table.columns, *table.rows]
        widths = [max(len(row[i]) for row in rows) for i in range(len(table.columns))]
        lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
        blocks.append("\n".join([table.title, *([table.note] if table.note else []), *lines]))
    return "\n\n".join(blocks) + "\n"


def comma_separated(tables: Sequence[Table]) -> str:
    """One CSV; the first column names the table, and each table begins with its own header."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    for table in tables:
        writer.writerow(["table", *table.columns])
        writer.writerows([table.title, *row] for row in table.rows)
    return out.getvalue()


FORMATS = {"text": text, "markdown": markdown, "csv": comma_separated}


def percent(value: float) -> str:
    """A share in per cent."""
    return "-" if math.isnan(value) else f"{100 * value:.2f} %"


def over_seeds(deviation: float, seeds: int) -> str:
    """A standard deviation and the number of seeds it is of."""
    return f"±{deviation:.4f} ({seeds})" if math.isfinite(deviation) else f"({seeds})"


def spread(values: Sequence[float], digits: int = 2) -> str:
    """Mean and standard deviation; a dash for none."""
    if not values:
        return "-"
    deviation = f" ± {stdev(values):.{digits}f}" if len(values) > 1 else ""
    return f"{mean(values):.{digits}f}{deviation}"


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
