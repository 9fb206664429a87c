"""The Transformer for translation (Vaswani et al. 2017); base: six layers of 512, eight heads, 2048 hidden.

With the shared vocabulary of 37,000 that is 63,082,496 parameters, which the original rounds to 65 million.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from autolrs.bench.models.attention import Layer

PAD = 0


class Transformer(nn.Module):
    """Tokens of a source and of a target (batch, length) -> logits of the target's next tokens.

    One embedding serves source, target and output; positions are sinusoids, so any length will do.
    """

    def __init__(
        self,
        vocabulary: int = 37_000,
        width: int = 512,
        heads: int = 8,
        hidden: int = 2048,
        layers: int = 6,
        dropout: float = 0.1,
    ) -> None:
        super().__init__()
        self.width = width
        self.embedding = nn.Embedding(vocabulary, width, padding_idx=PAD)
        with torch.no_grad():
            nn.init.normal_(self.embedding.weight, std=width**-0.5)
            self.embedding.weight[PAD].zero_()
        self.dropout = nn.Dropout(dropout)
        self.encoder = nn.ModuleList(Layer(width, heads, hidden, nn.ReLU(), dropout) for _ in range(layers))
        self.decoder = nn.ModuleList(Layer(width, heads, hidden, nn.ReLU(), dropout, cross=True) for _ in range(layers))

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        mask = source != PAD
        return self.decode(self.encode(source), mask, target)

    def encode(self, source: Tensor) -> Tensor:
        """The memory (batch, length, width) of a source."""
        x, mask = self._embed(source), source != PAD
        for layer in self.encoder:
            x = layer(x, mask)
        return x

    def decode(self, memory: Tensor, mask: Tensor, target: Tensor) -> Tensor:
        """Logits after each target token. Padding stands at the end, where no earlier token looks."""
        x = self._embed(target)
        for layer in self.decoder:
            x = layer(x, None, memory, mask, causal=True)
        return functional.linear(x, self.embedding.weight)

    @torch.no_grad()
    def translate(self, source: Tensor, begin: int, end: int, longest: int) -> Tensor:
        """Greedy translations (batch, up to `longest`), without `begin`; after `end` comes padding."""
        memory, mask = self.encode(source), source != PAD
        out = torch.full((len(source), 1), begin, dtype=torch.long, device=source.device)
        over = torch.zeros(len(source), dtype=torch.bool, device=source.device)
        for _ in range(longest):
            following = self.decode(memory, mask, out)[:, -1].argmax(-1)
            following = torch.where(over, PAD, following)
            out = torch.cat([out, following[:, None]], dim=1)
            over |= following == end
            if over.all():
                break
        return out[:, 1:]

    def _embed(self, tokens: Tensor) -> Tensor:
        x = self.embedding(tokens) * math.sqrt(self.width)
        out: Tensor = self.dropout(x + sinusoids(tokens.shape[1], self.width).to(x))
        return out


def sinusoids(length: int, width: int) -> Tensor:
    """Positions (length, width): sines in the even columns, cosines in the odd, wavelengths from 2 pi to 20,000 pi."""
    position = torch.arange(length)[:, None]
    rate = torch.exp(torch.arange(0, width, 2) * (-math.log(10_000.0) / width))
    table = torch.zeros(length, width)
    table[:, 0::2], table[:, 1::2] = torch.sin(position * rate), torch.cos(position * rate)
    return table
