"""Transformer base on WMT 2014 English-German (Section 5); narrow on message catalogues. Accuracy is BLEU."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor
from torch.nn import functional

from autolrs.bench.models.transformer import PAD, Transformer
from autolrs.bench.tasks import _pairs
from autolrs.bench.tasks._task import Bundle, Task, seeded
from autolrs.bench.tasks.cifar import PAPER, device
from autolrs.rivals.schedules import inverse_sqrt

SMOOTHING = 0.1
LR = (1e-4, 1e-2)
STEPS = 100_000
WARMUP = 4000


def _build(seed: int, pairs: _pairs.Pairs, tokens: int, held: int, **shape: int) -> Bundle:
    """Adam as Vaswani et al. set it, label smoothing .1 in training; losses that are reported are not smoothed.

    `tokens` a batch; `held` sentences of each held-out part are looked at.
    """
    where = device()
    with seeded(seed):
        net = Transformer(pairs.vocabulary, **shape).to(where)
    validation, test = (_pairs.padded(part[:held]) for part in (pairs.validation, pairs.test))

    def loss(batch: tuple[Tensor, Tensor]) -> Tensor:
        source, target = (side.to(where) for side in batch)
        logits = net(source, target[:, :-1])
        return functional.cross_entropy(
            logits.flatten(0, 1),
            target[:, 1:].flatten(),
            ignore_index=PAD,
            label_smoothing=SMOOTHING if net.training else 0.0,
        )

    def mean_loss(part: tuple[Tensor, Tensor]) -> float:
        """Per token: batches of sentences have different numbers of them."""
        was, total, count = net.training, 0.0, 0
        net.eval()
        with torch.no_grad():
            for start in range(0, len(part[0]), 128):
                batch = (part[0][start : start + 128], part[1][start : start + 128])
                tokens = int((batch[1][:, 1:] != PAD).sum())
                total, count = total + loss(batch).item() * tokens, count + tokens
        net.train(was)
        return total / count

    def score() -> float:
        """BLEU of greedy translations of the test sentences."""
        was = net.training
        net.eval()
        found: list[list[int]] = []
        for start in range(0, len(test[0]), 128):
            source = test[0][start : start + 128].to(where)
            out = net.translate(source, _pairs.BEGIN, _pairs.END, test[1].shape[1] + 10)
            found += [_words(row) for row in out.tolist()]
        net.train(was)
        return _pairs.bleu(found, [_words(row[1:]) for row in test[1].tolist()])

    return Bundle(
        model=net,
        optimizer=torch.optim.Adam(net.parameters(), lr=7e-4, betas=(0.9, 0.98), eps=1e-9),
        loader=_pairs.PairBatches(pairs.train, tokens, seed),
        loss=loss,
        evaluate=partial(mean_loss, validation),
        test=partial(mean_loss, test),
        validation=validation,
        accuracy=score,
    )


def _words(tokens: list[int]) -> list[int]:
    return tokens[: tokens.index(_pairs.END)] if _pairs.END in tokens else [t for t in tokens if t != PAD]


def _small(seed: int) -> Bundle:
    return _build(seed, _pairs.catalogues(), 384, 256, width=64, heads=4, hidden=128, layers=2)


def _smallest(seed: int) -> Bundle:
    return _build(seed, _pairs.any_catalogues(), 128, 32, width=16, heads=2, hidden=32, layers=1)


def _full(seed: int) -> Bundle:
    return _build(seed, _pairs.wmt14(), 25_000, 3000)


def _original(optimizer: torch.optim.Optimizer, total: int) -> torch.optim.lr_scheduler.LRScheduler:
    """4 % of warm-up to 7e-4, then 1 / sqrt(t)."""
    return inverse_sqrt(optimizer, 7e-4, total, WARMUP / STEPS)


TRANSFORMER_WMT14 = Task(
    "transformer-wmt14", 1200, LR, _small, find_data=_pairs.find_catalogues, hand_tuned=_original,
    others=(
        Task(
            "transformer-wmt14", 20, LR, _smallest, find_data=_pairs.find_any_catalogues, hand_tuned=_original,
            profile="smoke",
        ),
        Task(
            "transformer-wmt14", STEPS, LR, _full, find_data=_pairs.find_wmt14, hand_tuned=_original, profile="paper",
            target=0.273, recipe={**PAPER, "warmup_steps": WARMUP, "warmup_lr": 7e-4},
        ),
    ),
)  # fmt: skip
