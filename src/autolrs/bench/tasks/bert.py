"""BERT base, pre-trained in two phases and fine-tuned (Section 5); narrow on the King James Bible.

Phase 1, 90 % of the steps, has short sequences (128), phase 2 long ones (512); the full size runs in mixed precision.
Losses are masked-token plus next-sentence cross-entropy. Fine-tuning tasks are GLUE's MRPC, CoLA and MNLI at full size,
else telling which testament a verse is from; accuracies are recorded under `further`.
"""

from __future__ import annotations

import copy
import csv
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from autolrs.bench.models.bert import CLS, PAD, SEP, Bert, Classifier, Pretraining
from autolrs.bench.tasks import _wordpiece, data
from autolrs.bench.tasks._task import Bundle, Task, permutation, seeded
from autolrs.bench.tasks._wordpiece import Document, Examples, WordPiece
from autolrs.bench.tasks.cifar import PAPER, device
from autolrs.bench.tasks.data import folder
from autolrs.rivals.schedules import linear

LR = (1e-6, 1e-3)
STEPS, WARMUP = 250_000, 2500  # 225,000 and 25,000
PHASE_1 = 0.9
PEAK = 2e-4  # the original's 1e-4, by the square root of a batch four times as large

Labelled = list[tuple[list[int], list[int], int]]  # tokens, segments, class


def _build(
    seed: int,
    words: WordPiece,
    documents: list[Document],
    total: int,
    batch: int,
    lengths: tuple[int, int],
    finish: Callable[[Bert], dict[str, float]],
    mixed: bool = False,
    held: int = 8,
    **shape: int,
) -> Bundle:
    """`lengths` of the two phases; `held` batches each are validation and test, of the first length."""
    where = device()
    with seeded(seed):
        net = Pretraining(Bert(len(words), longest=lengths[1], **shape)).to(where)
    order = permutation(len(documents), 0, 0).tolist()
    cut = max(2, len(documents) // 20)
    parts = [[documents[i] for i in part] for part in (order[: -2 * cut], order[-2 * cut : -cut], order[-cut:])]
    loader = Examples(parts[0], len(words), batch, lengths[0], seed)
    validation, test = (_fixed(part, words, batch, lengths[0], held) for part in parts[1:])

    def loss(batch: tuple[Tensor, ...]) -> Tensor:
        tokens, segments, targets, follows = (part.to(where) for part in batch)
        with torch.autocast(where.type, torch.bfloat16) if mixed else nullcontext():
            states, sequel = net(tokens, segments)
            told = targets != -100
            words = net.words(states[told])
        return functional.cross_entropy(words.float(), targets[told]) + functional.cross_entropy(
            sequel.float(), follows
        )

    def mean_loss(part: tuple[Tensor, ...]) -> float:
        was = net.training
        net.eval()
        with torch.no_grad():
            found = [loss(tuple(t[i : i + batch] for t in part)).item() for i in range(0, len(part[0]), batch)]
        net.train(was)
        return sum(found) / len(found)

    def advance(committed: int) -> None:
        loader.length = lengths[0] if committed < PHASE_1 * total else lengths[1]

    decayed: list[Tensor] = [p for p in net.parameters() if p.dim() > 1]
    plain: list[Tensor] = [p for p in net.parameters() if p.dim() <= 1]  # biases and norms
    groups: list[dict[str, Any]] = [{"params": decayed}, {"params": plain, "weight_decay": 0.0}]
    return Bundle(
        model=net,
        optimizer=torch.optim.AdamW(groups, PEAK, weight_decay=0.01),
        loader=loader,
        loss=loss,
        evaluate=partial(mean_loss, validation),
        test=partial(mean_loss, test),
        clip=1.0,
        validation=validation,
        advance=advance,
        finish=lambda: finish(net.bert),
    )


def _fixed(documents: list[Document], words: WordPiece, batch: int, length: int, count: int) -> tuple[Tensor, ...]:
    """The same `count` batches for every run, one below the other."""
    source = Examples(documents, len(words), batch, length, seed=0)
    batches: list[tuple[Tensor, ...]] = []
    while len(batches) < count:
        batches += islice(iter(source), count - len(batches))
    return tuple(torch.cat(column) for column in zip(*batches, strict=True))


# Fine-tuning


def fine_tune(
    bert: Bert, classes: int, train: Labelled, dev: Labelled, epochs: int = 3, batch: int = 32, lr: float = 2e-5
) -> float:
    """Accuracy on `dev` after training a copy with a linear decay of the LR, as the original; `bert` stays as it is."""
    where = next(bert.parameters()).device
    with seeded(0):
        net = Classifier(copy.deepcopy(bert), classes).to(where)
        optimizer = torch.optim.AdamW(net.parameters(), lr=lr, weight_decay=0.01)
        total = epochs * -(-len(train) // batch)
        scheduler = linear(optimizer, lr, max(2, total), 0.1)
        net.train()
        for epoch in range(epochs):
            order = permutation(len(train), 0, epoch).tolist()
            for start in range(0, len(order), batch):
                tokens, segments, labels = _padded([train[i] for i in order[start : start + batch]], where)
                optimizer.zero_grad()
                functional.cross_entropy(net(tokens, segments), labels).backward()
                optimizer.step()
                scheduler.step()
    net.eval()
    right = 0
    with torch.no_grad():
        for start in range(0, len(dev), 64):
            tokens, segments, labels = _padded(dev[start : start + 64], where)
            right += int((net(tokens, segments).argmax(1) == labels).sum())
    return right / len(dev)


def _padded(rows: Labelled, where: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    tokens, segments = (
        torch.nn.utils.rnn.pad_sequence([torch.tensor(row[i]) for row in rows], batch_first=True, padding_value=PAD)
        for i in (0, 1)
    )
    return tokens.to(where), segments.to(where), torch.tensor([row[2] for row in rows], device=where)


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


GLUE: dict[str, tuple[int, str, str | None, str, tuple[str, ...], str]] = {
    # classes, column of the first text, of the second, of the label, labels, dev file
    "MRPC": (2, "#1 String", "#2 String", "Quality", ("0", "1"), "dev.tsv"),
    "CoLA": (2, "3", None, "1", ("0", "1"), "dev.tsv"),
    "MNLI": (
        3, "sentence1", "sentence2", "gold_label", ("entailment", "neutral", "contradiction"), "dev_matched.tsv",
    ),
}  # fmt: skip


def glue(bert: Bert, words: WordPiece, root: Path | None = None) -> dict[str, float]:
    """Fine-tuned accuracy on those of MRPC, CoLA and MNLI that are in glue/ of the data folder, as their TSVs."""
    root = folder() / "glue" if root is None else root
    found = {}
    for name, (classes, *columns, dev) in GLUE.items():
        if (root / name / "train.tsv").exists() and (root / name / str(dev)).exists():
            parts = [_tsv(root / name / str(file), words, *columns) for file in ("train.tsv", dev)]
            found[name] = fine_tune(bert, classes, parts[0], parts[1])
    return found


def _tsv(path: Path, words: WordPiece, first: Any, second: Any, label: Any, labels: Any) -> Labelled:
    """Rows of a GLUE file; CoLA's has no header, so its columns go by number."""
    with open(path, encoding="utf-8", newline="") as file:
        lines = list(csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    header = [str(i) for i in range(len(lines[0]))] if first.isdigit() else lines.pop(0)
    try:
        at = [header.index(name) for name in (first, label)] + ([header.index(second)] if second else [])
    except ValueError:
        raise ValueError(f"{path} must have the columns {first}, {label}; got {', '.join(header)}") from None
    return [
        labelled(words, (row[at[0]], row[at[2]] if second else None), labels.index(row[at[1]]), 128)
        for row in lines
        if len(row) > max(at) and row[at[1]] in labels
    ]


NEW_TESTAMENT = 7957  # verses, the last of 31,102


def testaments(bert: Bert, words: WordPiece, verses: list[str], train: int, dev: int) -> dict[str, float]:
    """Accuracy at telling the New Testament from the Old after fine-tuning on `train` verses, as many of each."""
    share = min(NEW_TESTAMENT, len(verses) // 3)
    old, new = verses[:-share], verses[-share:]
    sides = []
    for label, part in enumerate((old, new)):
        order = permutation(len(part), 0, label).tolist()[: (train + dev) // 2]
        sides.append([labelled(words, (part[i], None), label, bert.positions.num_embeddings) for i in order])
    cut = dev // 2
    return {
        "testament": fine_tune(
            bert, 2, sides[0][cut:] + sides[1][cut:], sides[0][:cut] + sides[1][:cut], epochs=2, lr=5e-4
        )
    }


def _small(seed: int) -> Bundle:
    words, documents, verses = _wordpiece.bible()
    finish = partial(testaments, words=words, verses=verses, train=1000, dev=500)
    return _build(
        seed, words, documents, 1500, 16, (32, 64), finish, width=48, heads=4, hidden=96, layers=2,
    )  # fmt: skip


def _smallest(seed: int) -> Bundle:
    words, documents, verses = _wordpiece.bible(400)
    finish = partial(testaments, words=words, verses=verses, train=64, dev=32)
    return _build(
        seed, words, documents, 20, 4, (16, 32), finish, held=2, width=16, heads=2, hidden=32, layers=1,
    )  # fmt: skip


def _full(seed: int) -> Bundle:
    words, documents = _wordpiece.corpus()
    return _build(
        seed, words, documents, STEPS, 1024, (128, 512), partial(glue, words=words), mixed=True, held=10,
    )  # fmt: skip


def _original(optimizer: torch.optim.Optimizer, total: int) -> torch.optim.lr_scheduler.LRScheduler:
    """1 % of warm-up, then linear to 0."""
    return linear(optimizer, PEAK, total, WARMUP / STEPS)


BERT = Task(
    "bert-pretraining", 1500, LR, _small, find_data=data.find_king_james_bible, hand_tuned=_original,
    others=(
        Task(
            "bert-pretraining", 20, LR, _smallest, find_data=data.find_king_james_bible, hand_tuned=_original,
            profile="smoke",
        ),
        Task(
            "bert-pretraining", STEPS, LR, _full, find_data=_wordpiece.find_corpus, hand_tuned=_original,
            profile="paper", recipe={**PAPER, "max_stage_steps": 32_000, "warmup_steps": WARMUP, "warmup_lr": PEAK},
        ),
    ),
)  # fmt: skip
