"""Character language models: a transformer and an LSTM on the King James Bible, a GRU on Shakespeare.

The recurrent ones clip their gradient, so too high a learning rate shows as a plateau rather than as a divergence.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn
from torch.nn import functional

from autolrs.bench.tasks import data
from autolrs.bench.tasks._attention import Block
from autolrs.bench.tasks._task import Bundle, Task, mean_loss, permutation, seeded


class Windows:
    """Re-iterable batches (inputs, targets), each (batch, length), cut from a text at shuffled places."""

    def __init__(self, codes: Tensor, batch_size: int, length: int, seed: int) -> None:
        self.codes, self.batch_size, self.length, self.seed = codes, batch_size, length, seed
        self.epoch = 0

    def __len__(self) -> int:
        return (len(self.codes) - 1) // self.length // self.batch_size

    def set_epoch(self, epoch: int) -> None:
        """Make the next `iter()` give this epoch."""
        self.epoch = epoch

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        starts = self.length * permutation((len(self.codes) - 1) // self.length, self.seed, self.epoch)
        self.epoch += 1
        for batch in starts[: len(self) * self.batch_size].view(-1, self.batch_size):
            yield windows(self.codes, batch, self.length)


def windows(codes: Tensor, starts: Tensor, length: int) -> tuple[Tensor, Tensor]:
    """Characters from each start, and the same shifted by one: what the model reads and what it must say."""
    text = codes[starts[:, None] + torch.arange(length + 1)]
    return text[:, :-1], text[:, 1:]


def spread(codes: Tensor, count: int, length: int) -> tuple[Tensor, Tensor]:
    """`count` fixed windows, evenly spread over the text: the same for every seed."""
    return windows(codes, torch.linspace(0, len(codes) - length - 1, count).long(), length)


class Transformer(nn.Module):
    """Two pre-norm causal blocks; the output layer shares the embedding's weights."""

    def __init__(self, vocabulary: int, length: int, width: int = 32) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        nn.init.normal_(self.embedding.weight, std=width**-0.5)
        self.position = nn.Parameter(0.02 * torch.randn(length, width))
        self.blocks = nn.Sequential(*(Block(width, 4, 4 * width, causal=True) for _ in range(2)))
        self.norm = nn.LayerNorm(width)

    def forward(self, codes: Tensor) -> Tensor:
        tokens = self.embedding(codes) + self.position
        return functional.linear(self.norm(self.blocks(tokens)), self.embedding.weight)


class Recurrent(nn.Module):
    """Embedding, one recurrent layer (`nn.LSTM` or `nn.GRU`), linear output."""

    def __init__(self, cell: type[nn.LSTM] | type[nn.GRU], vocabulary: int, width: int = 64) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.cell = cell(width, width, batch_first=True)
        self.output = nn.Linear(width, vocabulary)

    def forward(self, codes: Tensor) -> Tensor:
        logits: Tensor = self.output(self.cell(self.embedding(codes))[0])
        return logits


def language_model(
    text: data.Text,
    seed: int,
    shape: tuple[int, int],
    model: Callable[[int], nn.Module],
    optimizer: Callable[[nn.Module], torch.optim.Optimizer],
    clip: float | None = None,
) -> Bundle:
    """Cross-entropy in nats per character; `shape` is (batch, length) of the training windows."""
    batch_size, length = shape
    with seeded(seed):
        net = model(text.vocabulary)

    def loss(batch: tuple[Tensor, Tensor]) -> Tensor:
        return functional.cross_entropy(net(batch[0]).flatten(0, 1), batch[1].flatten())

    validation = spread(text.validation, 64, length)
    return Bundle(
        model=net,
        optimizer=optimizer(net),
        loader=Windows(text.train, batch_size, length, seed),
        loss=loss,
        evaluate=mean_loss(net, loss, validation, batch_size=64),
        test=mean_loss(net, loss, spread(text.test, 1024, length), batch_size=128),
        clip=clip,
        validation=validation,
    )


def build_transformer(seed: int) -> Bundle:
    return language_model(
        data.king_james_bible(), seed, (8, 32), lambda size: Transformer(size, 32),
        lambda net: torch.optim.AdamW(net.parameters(), lr=1e-3, fused=True, weight_decay=0.01),
    )  # fmt: skip


def build_lstm(seed: int) -> Bundle:
    return language_model(
        data.king_james_bible(), seed, (16, 24), lambda size: Recurrent(nn.LSTM, size),
        lambda net: torch.optim.SGD(net.parameters(), lr=1.0, momentum=0.9), clip=0.5,
    )  # fmt: skip


def build_gru(seed: int) -> Bundle:
    return language_model(
        data.shakespeare(), seed, (16, 20), lambda size: Recurrent(nn.GRU, size),
        lambda net: torch.optim.AdamW(net.parameters(), lr=1e-3, fused=True, weight_decay=0.01), clip=1.0,
    )  # fmt: skip


TRANSFORMER = Task("bible-transformer", 2000, (1e-4, 1e-1), build_transformer, find_data=data.find_king_james_bible)
LSTM = Task("bible-lstm", 1500, (1e-2, 10.0), build_lstm, find_data=data.find_king_james_bible)
GRU = Task("shakespeare-gru", 1200, (1e-4, 1e-1), build_gru, held_out=True, find_data=data.find_shakespeare)
