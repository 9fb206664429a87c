"""What the README's table "What to expect" says, from the committed rows."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from statistics import geometric_mean

import pytest

from autolrs.bench.runner import read_rows
from autolrs.bench.score import score

ROOT = Path(__file__).parents[2]
PAGE = runpy.run_path(str(ROOT / "tools" / "benchmarks_page.py"))
RATIOS = {
    one.task: one.ratio
    for one in score([row for path in sorted(PAGE["RESULTS"].glob("*.jsonl")) for row in read_rows(path)])
    if one.method == "horizon" and one.ratio == one.ratio
}
SHORT = {sgd: [task for task in PAGE["SHORT_TASKS"] if task.endswith("sgd") == sgd] for sgd in (False, True)}
TASKS = [[PAGE[name]] for name in ("HEADLINE_TASKS", "KIND_TASKS", "ORDINARY_TASKS", "DEEP_TASKS", "PRIOR_TASKS")]
TASKS += [[PAGE["FINETUNE_TASKS"]], [PAGE["TABLE_TASKS"]], [SHORT[False], SHORT[True]], [PAGE["BY_SGD"]]]


def test_its_numbers_are_those_of_the_rows():
    table = (ROOT / "README.md").read_text().split("## What to expect")[1].split("\n## ")[0]
    lines = [line.split("|")[2:5] for line in table.splitlines() if line.startswith("| ") and line.count("|") == 5]
    lines = [cells for cells in lines if cells[0].strip()[:1].isdigit()]
    assert len(lines) == len(TASKS)
    for (counts, means, worst), groups in zip(lines, TASKS, strict=True):
        told = [re.findall(r"[\d.]+", re.sub(r"\(.*\)", "", cell)) for cell in (counts, means, worst)]
        for count, mean, most, names in zip(*told, groups, strict=True):
            ratios = [RATIOS[name] for name in names if name in RATIOS]
            assert len(ratios) == int(count), names
            cut = geometric_mean(min(max(ratio, 0.1), 10) for ratio in ratios)
            assert cut == pytest.approx(float(mean), abs=0.006), names
            assert max(ratios) == pytest.approx(float(most), abs=0.06), names
