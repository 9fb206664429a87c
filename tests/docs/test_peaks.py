"""The constants of the horizon rule against the whole runs that they were chosen on (tools/peaks.py)."""

from __future__ import annotations

import runpy
from pathlib import Path

import numpy as np
import pytest

PEAKS = runpy.run_path(str(Path(__file__).parents[2] / "tools" / "peaks.py"))


@pytest.mark.parametrize(
    ("kind", "mean"), [("averaged", 0.02), ("plain", 0.01), ("short averaged", 0.055), ("short plain", 0.045)]
)
def test_the_rule_loses_as_little_as_the_research_log_says(kind, mean):
    assert np.mean(list(PEAKS["score"](PEAKS["read"](PEAKS["ROWS"]))[kind].values())) < mean


def test_on_the_development_tasks_it_loses_up_to_one_per_cent_and_four_on_digits():
    found = PEAKS["score"](PEAKS["read"](PEAKS["ROWS"]))["averaged"]
    own = {task: loss for task, loss in found.items() if ":" not in task}
    assert len(own) == 8 and own.pop("digits-mlp") < 0.04 and max(own.values()) < 0.012


def test_the_regret_of_the_best_peak_is_nothing_and_of_others_what_the_runs_say():
    row = {"runs": [[1.0, 0, 2.0], [2.0, 0, 1.0], [4.0, 0, 3.0], [8.0, None, None]]}
    assert PEAKS["regret"](row, 2.0) == pytest.approx(0.0, abs=1e-9)
    assert PEAKS["regret"](row, 1.0) == pytest.approx(1.0)
    assert PEAKS["regret"](row, 64.0) == pytest.approx(2.0)  # no further than what was run


@pytest.mark.parametrize("arguments", [[], ["record", "rows.jsonl"], ["nonsense"]])
def test_it_says_how_it_is_used(arguments):
    with pytest.raises(SystemExit, match=r"tools/peaks\.py record"):
        PEAKS["main"](arguments)
