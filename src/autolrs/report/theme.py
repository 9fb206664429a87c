"""Colours that a colour-blind person can tell apart (after Okabe and Ito), for a light and a dark page.

Figures name roles ("@blue", "@blue:0.2" with an opacity, "@lr:0.7" on the scale from low to high LR); `resolve` here,
or the page's script, puts the colours of the theme in.
"""

from __future__ import annotations

from typing import Any

LIGHT = {
    "ink": "#1b2631",
    "muted": "#66727f",
    "grid": "#e3e8ed",
    "paper": "#ffffff",
    "blue": "#0072b2",
    "sky": "#3a9bd9",
    "orange": "#d55e00",
    "gold": "#c98a00",
    "green": "#00805d",
    "purple": "#b5588f",
    "low": "#0072b2",
    "middle": "#8c8c8c",
    "high": "#d55e00",
}
DARK = {
    "ink": "#e6edf3",
    "muted": "#9aa8b5",
    "grid": "#2a3541",
    "paper": "#161e27",
    "blue": "#56b4e9",
    "sky": "#8ccbf0",
    "orange": "#ff8b3d",
    "gold": "#f0c244",
    "green": "#2ec79a",
    "purple": "#e39bc4",
    "low": "#56b4e9",
    "middle": "#a0a0a0",
    "high": "#ff8b3d",
}
RUNS = ("blue", "orange", "green", "purple", "gold", "ink")  # and dashes beside the colours, for several runs
DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")


def colour(role: str, theme: dict[str, str]) -> str:
    """The colour of a role such as "@blue" or "@blue:0.2".

    >>> colour("@blue:0.2", LIGHT), colour("@lr:0", LIGHT)
    ('rgba(0,114,178,0.2)', '#0072b2')
    """
    name, _, amount = role[1:].partition(":")
    if name == "lr":
        return _on_scale(float(amount), theme)
    if not amount:
        return theme[name]
    return f"rgba({','.join(map(str, _rgb(theme[name])))},{amount})"


def resolve(value: Any, theme: dict[str, str]) -> Any:
    """`value` with every role in it replaced."""
    if isinstance(value, str) and value.startswith("@"):
        return colour(value, theme)
    if isinstance(value, dict):
        return {key: resolve(item, theme) for key, item in value.items()}
    if isinstance(value, list):
        return [resolve(item, theme) for item in value]
    return value


def _on_scale(t: float, theme: dict[str, str]) -> str:
    start, end = ("low", "middle") if t < 0.5 else ("middle", "high")
    share = 2 * t if t < 0.5 else 2 * t - 1
    mixed = [round(a + (b - a) * share) for a, b in zip(_rgb(theme[start]), _rgb(theme[end]), strict=True)]
    return "#" + "".join(f"{part:02x}" for part in mixed)


def _rgb(code: str) -> list[int]:
    return [int(code[i : i + 2], 16) for i in (1, 3, 5)]
