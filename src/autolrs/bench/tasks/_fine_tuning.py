"""Fine-tuning BERT (Devlin et al. 2019): a few epochs with a linear decay of the LR; GLUE's MRPC, CoLA and MNLI."""

from __future__ import annotations

import copy
import csv
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.rnn import pad_sequence

from autolrs.bench.models.bert import CLS, PAD, SEP, Bert, Classifier
from autolrs.bench.tasks._task import permutation, seeded
from autolrs.bench.tasks._wordpiece import WordPiece
from autolrs.bench.tasks.data import folder
from autolrs.rivals.schedules import linear

Labelled = list[tuple[list[int], list[int], int]]  # tokens, segments, class
Score = Callable[[Sequence[int], Sequence[int]], float]  # of told and true classes


def accuracy(told: Sequence[int], true: Sequence[int]) -> float:
    """The share that is right."""
    return sum(a == b for a, b in zip(told, true, strict=True)) / len(true)


def matthews(told: Sequence[int], true: Sequence[int]) -> float:
    """Matthews' correlation of two classes; 0 where one side names one class only.

    >>> matthews([1, 1, 0, 0], [1, 1, 0, 0]), matthews([1, 1, 1, 1], [1, 1, 0, 0]), matthews([0, 0, 1, 1], [1, 1, 0, 0])
    (1.0, 0.0, -1.0)
    """
    count = [[0, 0], [0, 0]]
    for a, b in zip(told, true, strict=True):
        count[a][b] += 1
    (tn, fn), (fp, tp) = count
    scale = math.sqrt((tp + fp) * (tp + fn) * (tn + fp) * (tn + fn))
    return (tp * tn - fp * fn) / scale if scale else 0.0


def tune(net: nn.Module, rows: int, loss: Callable[[list[int]], Tensor], epochs: int, batch: int, lr: float) -> None:
    """Train `net` on batches of row numbers: AdamW, a tenth of the steps as warm-up, then linear to 0."""
    optimizer = torch.optim.AdamW(net.parameters(), lr=lr, weight_decay=0.01)
    scheduler = linear(optimizer, lr, max(2, epochs * -(-rows // batch)), 0.1)
    net.train()
    for epoch in range(epochs):
        order = permutation(rows, 0, epoch).tolist()
        for start in range(0, rows, batch):
            optimizer.zero_grad()
            loss(order[start : start + batch]).backward()
            optimizer.step()
            scheduler.step()
    net.eval()


def fine_tune(
    bert: Bert,
    classes: int,
    train: Labelled,
    dev: Labelled,
    epochs: int = 3,
    batch: int = 32,
    lr: float = 2e-5,
    score: Score = accuracy,
) -> float:
    """What a copy comes to on `dev` after training, by `score`; `bert` stays as it is."""
    where = next(bert.parameters()).device
    with seeded(0):
        net = Classifier(copy.deepcopy(bert), classes).to(where)

        def loss(rows: list[int]) -> Tensor:
            tokens, segments = padded([train[i] for i in rows], where)
            return functional.cross_entropy(net(tokens, segments), torch.tensor([train[i][2] for i in rows]).to(where))

        tune(net, len(train), loss, epochs, batch, lr)
    told: list[int] = []
    with torch.no_grad():
        for start in range(0, len(dev), 64):
            told += net(*padded(dev[start : start + 64], where)).argmax(1).tolist()
    return score(told, [label for _, _, label in dev])


def padded(rows: Sequence[tuple[Any, ...]], where: torch.device) -> tuple[Tensor, Tensor]:
    """Tokens and segments of rows that begin with them, (batch, longest)."""
    tokens, segments = (
        pad_sequence([torch.tensor(row[i]) for row in rows], batch_first=True, padding_value=PAD) for i in (0, 1)
    )
    return tokens.to(where), segments.to(where)


def labelled(
    words: WordPiece, texts: tuple[str, str | None], label: int, longest: int
) -> tuple[list[int], list[int], int]:
    """One example from a text or a pair of them, cut to `longest` tokens."""
    first = words.encode(texts[0])
    second = None if texts[1] is None else words.encode(texts[1])
    room = longest - (2 if second is None else 3)
    while len(first) + len(second or ()) > room:
        (first if second is None or len(first) >= len(second) else second).pop()
    tokens, segments = [CLS, *first, SEP], [0] * (len(first) + 2)
    if second is not None:
        tokens, segments = [*tokens, *second, SEP], segments + [1] * (len(second) + 1)
    return tokens, segments, label


# CoLA: the paper writes accuracy, but always saying "acceptable" has 69 % there; its 47.8 is GLUE's own measure.
GLUE: dict[str, tuple[int, str, str | None, str, tuple[str, ...], str, Score]] = {
    # classes, column of the first text, of the second, of the label, labels, dev file, score
    "MRPC": (2, "#1 String", "#2 String", "Quality", ("0", "1"), "dev.tsv", accuracy),
    "CoLA": (2, "3", None, "1", ("0", "1"), "dev.tsv", matthews),
    "MNLI": (
        3, "sentence1", "sentence2", "gold_label", ("entailment", "neutral", "contradiction"), "dev_matched.tsv",
        accuracy,
    ),
}  # fmt: skip


def glue(bert: Bert, words: WordPiece, root: Path | None = None) -> dict[str, float]:
    """What those of MRPC, CoLA and MNLI come to that are in glue/ of the data folder, as their TSVs."""
    root = folder() / "glue" if root is None else root
    found = {}
    for name, (classes, *columns, dev, score) in GLUE.items():
        files = [root / name / "train.tsv", root / name / str(dev)]
        if all(file.exists() for file in files):
            train, test = (_tsv(file, words, *columns) for file in files)
            found[name] = fine_tune(bert, classes, train, test, score=score)
    return found


def _tsv(path: Path, words: WordPiece, first: Any, second: Any, label: Any, labels: Any) -> Labelled:
    """Rows of a GLUE file; CoLA's has no header, so its columns go by number."""
    with open(path, encoding="utf-8", newline="") as file:
        lines = list(csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    if not lines:
        raise ValueError(f"{path} is empty")
    header = [str(i) for i in range(len(lines[0]))] if first.isdigit() else lines.pop(0)
    try:
        at = [header.index(name) for name in (first, label)] + ([header.index(second)] if second else [])
    except ValueError:
        wanted = ", ".join(filter(None, (first, second, label)))
        raise ValueError(f"{path} must have the columns {wanted}; got {', '.join(header)}") from None
    return [
        labelled(words, (row[at[0]], row[at[2]] if second else None), labels.index(row[at[1]]), 128)
        for row in lines
        if len(row) > max(at) and row[at[1]] in labels
    ]
