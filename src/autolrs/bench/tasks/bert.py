"""BERT base, pre-trained in two phases and fine-tuned (Section 5); narrow on the King James Bible.

Phase 1, 90 % of the steps, has short sequences (128), phase 2 long ones (512); the full size runs in mixed precision.
Losses are masked-token plus next-sentence cross-entropy. Fine-tuning tasks are GLUE's MRPC, CoLA and MNLI at full size,
with SQuAD v1.1, else telling which testament a verse is from; what they come to is recorded under `further`.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from itertools import islice
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from autolrs.bench.models.bert import Bert, Pretraining
from autolrs.bench.tasks import _wordpiece, data
from autolrs.bench.tasks._fine_tuning import fine_tune, glue, labelled
from autolrs.bench.tasks._squad import squad
from autolrs.bench.tasks._task import Bundle, Task, permutation, seeded
from autolrs.bench.tasks._wordpiece import Document, Examples, WordPiece
from autolrs.bench.tasks.cifar import PAPER, device
from autolrs.rivals.schedules import linear

LR = (1e-6, 1e-3)
STEPS, WARMUP = 250_000, 2500  # 225,000 and 25,000
PHASE_1 = 0.9
PEAK = 2e-4  # the original's 1e-4, by the square root of a batch four times as large


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


def downstream(bert: Bert, words: WordPiece) -> dict[str, float]:
    """The paper's four fine-tuning tasks, as far as their data is there."""
    return {**glue(bert, words), **squad(bert, words)}


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
        seed, words, documents, STEPS, 1024, (128, 512), partial(downstream, words=words), mixed=True, held=10,
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
