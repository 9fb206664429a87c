from __future__ import annotations

import json

import pytest

pytest.importorskip("torch")


@pytest.mark.distributed
def test_overhead_prints_every_bar_and_keeps_the_rows(cli, tmp_path):
    file = tmp_path / "rows.json"
    result = cli("bench", "overhead", "--quick", "--json", file)
    assert result.exit_code == 0, result.output
    for words in (
        "auto.step, LR ramps",
        "decisions of one paper stage",
        "restore over memcpy",
        "simulated run",
        "on 2 ranks",
    ):
        assert words in result.stdout
    values = json.loads(file.read_text())
    assert len(values["rows"]) == 9
    assert values["versions"]["autolrs"] and values["quick"] is True
    assert all(row["raw"] and row["bar"] > 0 for row in values["rows"])
