"""The few shapes of HTML that the report is made of. Every function escapes what it is given, unless it says HTML."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any

Cell = str | int | float | None


@dataclass
class Part:
    """HTML, and the figures that belong into it by key."""

    html: str = ""
    figures: dict[str, object] = field(default_factory=dict)
    links: list[tuple[str, str]] = field(default_factory=list)

    def add(self, key: str, title: str, inner_html: str, **figures: object) -> None:
        """One section with its own heading and anchor."""
        self.html += (
            f'<section id="{key}" aria-labelledby="{key}-h"><h2 id="{key}-h">{escape(title)}</h2>{inner_html}</section>'
        )
        self.figures.update({f"{key}-{name}": spec for name, spec in figures.items()})
        self.links.append((key, title))


def table(caption: str, columns: Sequence[str], rows: Iterable[Sequence[Cell]], *, bold: Iterable[int] = ()) -> str:
    """A table that scrolls on its own, by keyboard too. A column name that begins with '>' is set to the right."""
    right = [column.startswith(">") for column in columns]
    head = "".join(
        f'<th scope="col"{_right(r)}>{escape(c.lstrip(">"))}</th>' for c, r in zip(columns, right, strict=True)
    )
    strong = set(bold)
    body = "".join(
        f"<tr{' class=win' if i in strong else ''}>"
        + "".join(f"<td{_right(r)}>{escape(_text(cell))}</td>" for cell, r in zip(row, right, strict=True))
        + "</tr>"
        for i, row in enumerate(rows)
    )
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(caption)}"><table>'
        f"<caption>{escape(caption)}</caption><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def details(summary: str, inner_html: str) -> str:
    """Something to open; `inner_html` is HTML."""
    return f"<details><summary>{escape(summary)}</summary>{inner_html}</details>"


def figure(key: str, caption: str, alternative_html: str = "", *, picker: str = "") -> str:
    """A place for figure `key`, what it tells in a line, and the same as a table (HTML) for those who cannot see it."""
    of = f' data-picker="{escape(picker)}"' if picker else ""
    told = f"<figcaption>{escape(caption)}</figcaption>" if caption else ""
    shown = details("The numbers as a table", alternative_html) if alternative_html else ""
    label = escape(caption or key)
    plot = f'<div class="plot" data-figure="{escape(key)}"{of} role="img" aria-label="{label}"></div>'
    return f"<figure>{told}{plot}{shown}</figure>"


def embedded(identity: str, value: Any) -> str:
    """JSON inside a page: no text in it can end the script element or begin a comment."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return f'<script type="application/json" id="{escape(identity)}">{text}</script>'


def _right(right: bool) -> str:
    return ' class="n"' if right else ""


def _text(cell: Cell) -> str:
    if cell is None:
        return "-"
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    if isinstance(cell, int):
        return f"{cell:,}"
    return f"{cell:.4g}" if isinstance(cell, float) else cell
