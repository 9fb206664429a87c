"""Pictures of rows: LR and training loss along the run, test loss beside them; one file a task."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from statistics import median

from autolrs.bench.score import Row, by_task_and_method

_COLUMNS = (("lrs", "learning rate"), ("losses", "training loss"), ("curve", "test loss"))


def curves(rows: Iterable[Row]) -> dict[str, dict[str, dict[str, list[tuple[int, float]]]]]:
    """Task -> column -> method -> the median over seeds at each step at which all of them have a value."""
    result: dict[str, dict[str, dict[str, list[tuple[int, float]]]]] = {}
    for (task, method), group in by_task_and_method(rows).items():
        for column, _ in _COLUMNS:
            at: dict[int, list[float]] = {}
            for row in group:
                for step, value in row.get(column, []):
                    if value is not None:
                        at.setdefault(int(step), []).append(value)
            points = [(step, median(values)) for step, values in sorted(at.items()) if len(values) == len(group)]
            if points:
                result.setdefault(task, {}).setdefault(column, {})[method] = points
    return result


def draw(rows: Iterable[Row], folder: Path) -> list[Path]:
    """Write a PNG for each task; needs matplotlib."""
    from matplotlib import colormaps
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    folder.mkdir(parents=True, exist_ok=True)
    made = []
    for task, columns in curves(rows).items():
        names = list(dict.fromkeys(method for found in columns.values() for method in found))
        # Ten colours, then the same ones in the next of four styles: 40 methods can be told apart.
        look = {
            name: {"color": colormaps["tab10"](i % 10), "linestyle": ("-", "--", ":", "-.")[i // 10 % 4]}
            for i, name in enumerate(names)
        }
        figure = Figure(figsize=(16, 4.5), layout="constrained")
        FigureCanvasAgg(figure)
        handles = {}
        for axis, (column, title) in zip(figure.subplots(1, len(_COLUMNS)), _COLUMNS, strict=True):
            for method, points in columns.get(column, {}).items():
                above = [
                    (step, value) for step, value in points if value > 0
                ]  # the end of a decay to 0 has no logarithm
                if above:
                    (handles[method],) = axis.plot(*zip(*above, strict=True), linewidth=1, **look[method])
                    axis.set_yscale("log")
            axis.set(xlabel="committed step", title=title)
        figure.legend(handles.values(), handles, loc="outside right upper", fontsize=6, ncols=1 + len(handles) // 32)
        figure.suptitle(task)
        path = folder / f"{task.replace(' (', '-').strip(')')}.png"
        figure.savefig(path, dpi=100)
        made.append(path)
    return made
