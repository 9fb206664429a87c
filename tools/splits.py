"""How much of a figure on digits-cnn is due to its 456 test images: other splits of the same images.

    python tools/splits.py FILE.jsonl SPLIT ...    # adds horizon, and cosine at its tuned LR, on eight seeds a split

The rows behind docs/research-log.md are benchmarks/results/peaks/digits-cnn-splits.jsonl; split 0 is the benchmark's.
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

from autolrs.bench import tuning
from autolrs.bench.methods import METHODS
from autolrs.bench.runner import read_rows, run
from autolrs.bench.tasks import TASKS
from autolrs.bench.tasks.digits import build_cnn

SEEDS = range(200, 208)
RIVALS = Path(__file__).parents[1] / "benchmarks" / "results" / "digits.jsonl"
KEPT = ("peak", "validation", "test")


def main(out: str, *splits: str) -> None:
    """Append a row for each split, seed and method."""
    rows = [row for row in read_rows(RIVALS) if (row["task"], row["method"]) == ("digits-cnn", "cosine")]
    methods = {
        "horizon": tuning.Candidate(),
        "cosine": tuning.of(next(row for row in rows if row["phase"] == "report")),
    }
    for split in map(int, splits):
        task = replace(TASKS["digits-cnn"], build=partial(build_cnn, split=split))
        for seed in SEEDS:
            for name, candidate in methods.items():
                row = run(task, METHODS[name], seed, candidate, "tune")
                line = {"split": split, "seed": seed, "method": name, **{key: row[key] for key in KEPT}}
                with Path(out).open("a") as file:
                    file.write(json.dumps(line) + "\n")
                print(line, flush=True)


if __name__ == "__main__":
    if len(sys.argv) < 3:
        raise SystemExit(__doc__)
    main(*sys.argv[1:])
