"""Fine-tuning BERT: what can be learned is learned, and GLUE's files are read as they come."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from autolrs.bench.models.bert import CLS, SEP, Bert  # noqa: E402 - torch may be missing
from autolrs.bench.tasks import _fine_tuning  # noqa: E402
from autolrs.bench.tasks._wordpiece import WordPiece  # noqa: E402

ROWS = [([CLS, 5 + label, SEP], [0, 0, 0], label) for label in (0, 1)] * 40


def small(words: int) -> Bert:
    torch.manual_seed(0)
    return Bert(words, 16, 2, 32, 1, 128)


def test_it_learns_what_can_be_learned_and_leaves_the_original_alone():
    net = small(20)
    before = {name: value.clone() for name, value in net.state_dict().items()}
    assert _fine_tuning.fine_tune(net, 2, ROWS, ROWS[:20], epochs=6, batch=8, lr=5e-3) == 1.0
    assert all(torch.equal(before[name], value) for name, value in net.state_dict().items())


def test_the_score_gets_what_was_told_and_what_is_true():
    seen = []
    _fine_tuning.fine_tune(
        small(20), 2, ROWS, ROWS[:6], epochs=1, score=lambda told, true: float(seen.append((told, true)) or 7)
    )
    ((told, true),) = seen
    assert len(told) == 6 and set(told) <= {0, 1} and true == [0, 1] * 3


def test_matthews_is_what_scikit_learn_says():
    metrics = pytest.importorskip("sklearn.metrics")
    told, true = [1, 0, 1, 1, 0, 1, 1, 0, 0, 1], [1, 0, 0, 1, 1, 1, 1, 0, 1, 1]
    assert _fine_tuning.matthews(told, true) == pytest.approx(metrics.matthews_corrcoef(true, told))


def test_glue_files_are_read_and_what_is_not_there_is_left_out(tmp_path):
    words = WordPiece.learn(["good bad day night"], 40)
    (tmp_path / "CoLA").mkdir()
    for name in ("train.tsv", "dev.tsv"):
        (tmp_path / "CoLA" / name).write_text("x\t1\t\tgood day\nx\t0\t*\tbad night\n" * 8)
    found = _fine_tuning.glue(small(len(words)), words, tmp_path)
    assert set(found) == {"CoLA"} and -1.0 <= found["CoLA"] <= 1.0
    (tmp_path / "MRPC").mkdir()
    for name in ("train.tsv", "dev.tsv"):
        (tmp_path / "MRPC" / name).write_text("a\tb\n1\t2\n")
    with pytest.raises(ValueError, match="must have the columns #1 String"):
        _fine_tuning.glue(small(len(words)), words, tmp_path)
    (tmp_path / "MRPC" / "train.tsv").write_text("")
    with pytest.raises(ValueError, match=r"train\.tsv is empty"):
        _fine_tuning.glue(small(len(words)), words, tmp_path)


def test_a_pair_is_cut_from_its_longer_side():
    words = WordPiece(["a", "b"])
    tokens, segments, label = _fine_tuning.labelled(words, ("a a a a a", "b b"), 1, 8)
    a, b = words.number["a"], words.number["b"]
    assert tokens == [CLS, a, a, a, SEP, b, b, SEP] and segments == [0] * 5 + [1] * 3 and label == 1
