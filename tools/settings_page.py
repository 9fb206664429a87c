"""Writes docs/settings.md from the Settings dataclass: names, defaults and the comments beside them."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

from autolrs.core.settings import PRESETS, Settings

PAGE = Path(__file__).parents[1] / "docs" / "settings.md"


def render() -> str:
    """The page's text."""
    lines = [
        "# Settings",
        "",
        "Any of these is a keyword of `autolrs.AutoLRS`. Symbols in brackets are the paper's.",
        "",
    ]
    source = inspect.getsource(Settings).split("def __post_init__")[0]
    table = False
    for line in source.splitlines():
        section = re.fullmatch(r"    # (.+)", line)
        field = re.fullmatch(r"    (\w+): (.+?) = (.+?)(?:  # (.+))?", line)
        if section:
            lines += ["", f"## {section[1]}", ""]
            table = False
        elif field:
            if not table:
                lines += ["| setting | type | default | meaning |", "|---|---|---|---|"]
                table = True
            name, kind, default, meaning = (text or "" for text in field.groups())
            if default == "(":
                raise ValueError(f"`{name}` takes several lines in its dataclass: shorten the comment beside it")
            kind = kind.replace(" | ", " or ")  # a bar would end the cell
            lines.append(f"| `{name}` | `{kind}` | `{default}` | {meaning} |")
    lines += ["", "## Presets", ""]
    for name, values in PRESETS.items():
        lines.append(
            f"- `{name}`: " + (", ".join(f"`{key}={value}`" for key, value in values.items()) or "the defaults above")
        )
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(render())
