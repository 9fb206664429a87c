from __future__ import annotations

import math

import pytest

pytest.importorskip("torch")

from autolrs.bench.score import Score
from autolrs.bench.tables import FORMATS, TABLES, headline
from autolrs.bench.tables._table import Table


def cells(text, method, occurrence=0):
    lines = [line for line in text.splitlines() if line.startswith(f"| {method} |")]
    return [cell.strip() for cell in lines[occurrence].strip("|").split("|")]


GOOD = Score("a", "horizon", 5, 0.12345, 0.001, 1.02, 1.13, 1.5, 1.2)
BETTER = Score("a", "cosine", 5, 0.121, 0.002, 1.0, 1.0, 1.0, 1.0)
DIVERGED = Score("a", "constant", 5, math.inf, math.nan, math.inf, 1.0, 0.0, 0.0)
LONE = Score("b", "horizon", 1, 0.5, math.nan, math.nan, 1.2, math.nan, math.nan)


def test_methods_are_listed_from_the_lowest_loss_to_the_diverged():
    text = headline([DIVERGED, GOOD, BETTER])
    first = text.split("### Over tasks")[0]
    assert [first.index(f"| {name} |") for name in ("cosine", "horizon", "constant")] == sorted(
        first.index(f"| {name} |") for name in ("cosine", "horizon", "constant")
    )


def test_a_row_shows_loss_spread_ratio_cost_and_speedups():
    text = headline([GOOD, BETTER])
    assert cells(text, "horizon") == ["horizon", "0.1235", "±0.0010 (5)", "1.020", "1.13", "1.50", "1.20", "-"]
    assert cells(text, "horizon", 1) == ["horizon", "1", "1.020", "1.020", "-", "1.13"]
    wider = headline([GOOD._replace(spread_ratio=1.5), BETTER])
    assert cells(wider, "horizon", 1) == ["horizon", "1", "1.020", "1.020", "1.500", "1.13"]


def test_divergence_is_said_in_words():
    text = headline([DIVERGED, BETTER])
    expected = ["constant", "diverged", "(5)", "inf", "1.00", "not reached", "not reached", "-"]
    assert cells(text, "constant") == expected
    assert cells(text, "constant", 1) == ["constant", "1", "inf", "inf", "-", "1.00"]


def test_what_has_no_comparison_is_a_dash_and_comes_last():
    text = headline([LONE, *(one._replace(task="a") for one in (BETTER, DIVERGED))])
    assert cells(text, "horizon") == ["horizon", "0.5000", "(1)", "-", "1.20", "-", "-", "-"]
    assert cells(text, "horizon", 1) == ["horizon", "0", "-", "-", "-", "1.20"]
    assert text.rstrip().splitlines()[-1].startswith("| horizon |")


def test_every_table_is_markdown_of_even_width():
    text = headline([GOOD, BETTER, LONE])
    assert text.count("### ") == 3 and text.endswith("|\n")
    tables = [block.splitlines() for block in text.split("\n\n") if block.startswith("|")]
    assert len(tables) == 3
    for lines in tables:
        assert len({line.count("|") for line in lines}) == 1
        assert set(lines[1]) == {"|", "-"}


def test_accuracy_and_tuning_are_shown_where_there_are_any():
    text = headline([GOOD._replace(accuracy=0.912, tuning=6.2), BETTER])
    expected = ["horizon", "0.1235", "±0.0010 (5)", "91.20 %", "1.020", "1.13", "1.50", "1.20", "6 runs"]
    assert cells(text, "horizon") == expected
    assert cells(text, "cosine")[3] == "-"


# Formats

SMALL = [Table("One", ["a", "b"], [["1", "x, y"], ["22", ""]], "A note."), Table("Two", ["c"], [["3"]])]


def test_text_is_aligned():
    assert FORMATS["text"](SMALL) == "One\nA note.\na   b\n1   x, y\n22\n\nTwo\nc\n3\n"


def test_csv_names_the_table_and_quotes():
    assert FORMATS["csv"](SMALL) == 'table,a,b\nOne,1,"x, y"\nOne,22,\ntable,c\nTwo,3\n'


def test_markdown_has_the_note_under_the_title():
    assert FORMATS["markdown"](SMALL).startswith("### One\n\nA note.\n\n| a | b |\n|---|---|\n| 1 | x, y |\n")


# The paper's tables


def row(method, seed=0, test=0.5, *, phase="report", task="vgg16-cifar10", accuracy=0.9, lr=None, **more):
    values = {"task": task, "method": method, "phase": phase, "seed": seed, "test": test, "accuracy": accuracy}
    values |= {"lr": lr, "total_steps": 100, "raw_steps": 200, "evaluations": 3, "curve": [[100, test]]}
    return {**values, "profile": "paper", "accuracy_curve": [[50, 0.5], [80, accuracy]], "options": {}, **more}


def lines(name, rows):
    return [[table.title, *line] for table in TABLES[name](rows) for line in table.rows]


def test_methods_are_compared_with_everything_counted_beside_the_paper():
    tuning = [row("hypergradient", 100, phase="tune", lr=0.1, raw_steps=100, evaluations=0) for _ in range(3)]
    rows = [*tuning, row("hypergradient", lr=0.1, raw_steps=100, evaluations=0), row("paper", test=0.4)]
    title = "Methods compared: vgg16-cifar10 (paper)"
    assert lines("methods", rows) == [
        [title, "paper", "0.4000", "(1)", "90.00 %", "2.1 runs", "-", "94.13 %, 6,538 s"],
        [title, "hypergradient", "0.5000", "(1)", "90.00 %", "4.0 runs", "3.0 runs", "91.31 %, 187,110 s"],
    ]


def test_tables_of_methods_and_ablations_show_the_spread_over_seeds():
    rows = [row("paper", seed, test) for seed, test in enumerate((0.4, 0.5))]
    for name in ("methods", "ablation"):
        assert lines(name, rows)[0][2:4] == ["0.4500", "±0.0707 (2)"]


def test_tau_max_says_when_the_target_is_reached_and_what_the_paper_has():
    rows = [row("paper", 0, accuracy=0.94), row("paper", 1, accuracy=0.93), row("paper-tau-half", 0, accuracy=0.95)]
    found = lines("tau-max", rows)
    title = "Sensitivity to tau_max: vgg16-cifar10 (paper)"
    assert found[:2] == [
        [title, "paper-tau-half", "80", "accuracy", "95.00", "95.00 %", "2.10"],
        [title, "paper", "80, N/A", "accuracy", "94.00, 93.00", "93.50 ± 0.71 %", "2.10"],
    ]
    assert found[2][1:3] == ["4,000", "108, 181, 223, 315, 287"] and found[2][-1] == "94.01 ± 0.13 %"
    assert len(found) == 2 + 3


def test_without_a_target_there_is_no_column_for_it():
    table = TABLES["tau-max"]([row("paper", profile="cpu", task="digits-mlp", accuracy=None)])[0]
    assert table.columns == ["method", "what", "by seed", "mean ± deviation", "cost"]
    assert table.rows == [["paper", "test loss", "0.5000", "0.5000", "2.10"]]


@pytest.mark.parametrize(
    ("name", "method", "theirs"), [("random-search", "paper-random", 3), ("grid-search", "paper-grid", 3)]
)
def test_searches_in_the_place_of_bo(name, method, theirs):
    found = lines(name, [row("paper"), row(method)])
    assert [line[1] for line in found[:2]] == ["paper", method] and len(found) == 2 + theirs


def test_ablations_are_held_against_algorithm_1():
    found = lines("ablation", [row("paper", test=0.4), row("paper-replay", test=0.5), row("cosine", test=0.1)])
    assert [[*line[1:3], line[5]] for line in found] == [
        ["paper", "0.4000", "0.00 %"],
        ["paper-replay", "0.5000", "25.00 %"],
    ]


def test_ablations_show_the_median_which_one_dead_seed_does_not_move():
    (found,) = lines("ablation", [row("paper", seed, test) for seed, test in enumerate((0.4, 90.0, 0.5))])
    assert found[2:5] == ["30.3000", "±51.7017 (3)", "0.5000"]


def test_the_hypergradient_grid_comes_from_tuning_rows():
    rows = [
        row("hypergradient", 100, phase="tune", lr=lr, options={"hypergradient_lr": hyper}, accuracy=lr + hyper)
        for lr in (0.1, 0.01)
        for hyper in (0.1, 0.2)
        if (lr, hyper) != (0.01, 0.2)
    ]
    ours, *theirs = TABLES["hypergradient"](rows)
    assert ours.rows == [["0.01", "11.00 %", "-"], ["0.1", "20.00 %", "30.00 %"]]
    assert [len(table.rows) for table in theirs] == [6, 6] and theirs[0].rows[5][1] == "91.80 %"


def test_variability_lists_every_seed():
    rows = [row("paper", seed, task="vgg16-cifar100", accuracy=a) for seed, a in enumerate((0.72, 0.74))]
    found = lines("variability", rows)
    assert found[0][1:] == ["paper", "accuracy", "72.00, 74.00", "73.00 ± 1.41 %"]
    assert found[1][2] == "73.05 ± 0.14 %"  # as the paper says of its own
    diverged = lines("variability", [row("paper", 0, None, accuracy=None, task="bert-pretraining")])
    assert diverged[0][1:] == ["paper", "test loss", "diverged", "-"]
    half = lines("variability", [row("paper", 0, None, accuracy=0.1), row("paper", 1, accuracy=0.9)])
    assert half[0][1:] == ["paper", "accuracy", "diverged, 90.00", "90.00 %"]


def test_fine_tuning_takes_the_best_seed():
    rows = [row("paper", s, task="bert-pretraining", further={"MRPC": v}) for s, v in enumerate((0.8, 0.9))]
    found = lines("fine-tuning", rows)
    assert found[0][1:] == ["bert-pretraining (paper)", "paper", "90.00 %"]
    assert found[-1][1:] == ["paper's BERT base", "paper", "88.0 %"]


def test_the_papers_own_means_agree_with_its_trials():
    from statistics import mean, pstdev, stdev

    from autolrs.bench import published

    for tau, wanted in {4000: (94.01, 0.13), 8000: (93.96, 0.07), 16000: (93.80, 0.10)}.items():
        values = [accuracy for _, accuracy in published.TAU_MAX[tau]]
        assert mean(values) == pytest.approx(wanted[0], abs=0.011)
        assert min(abs(f(values) - wanted[1]) for f in (stdev, pstdev)) < 0.011
    best = {name: max(max(line) for line in grid) for name, grid in published.HYPERGRADIENT.items()}
    assert best == {"vgg16-cifar10": 91.80, "resnet50-cifar10": 92.52}


def test_profiles_and_paired_differences_have_a_line_per_method():
    rows = [row(method, seed, 0.1 + 0.1 * i) for i, method in enumerate(("cosine", "wsd")) for seed in (0, 1)]
    assert lines("profiles", rows)[0][1:] == ["cosine", "1.00", "1.00", "1.00", "1.00", "1.00"]
    assert lines("paired", rows)[0][1:] == ["wsd", "2", "100.00 %", "0.00 %", "0 of 2"]


def test_the_papers_figures_stand_beside_its_own_tasks_only():
    table, theirs = TABLES["methods"]([row("paper", task="digits-mlp"), row("hand-tuned", task="digits-mlp")])
    assert "paper" not in table.columns and len(table.columns) == len(table.rows[0]) == 6
    assert ["paper", "94.13 %", "6,538 s"] in theirs.rows
    assert lines("methods", [row("hand-tuned", task="resnet50-cifar10")])[0][-1] == "95.56 %"
