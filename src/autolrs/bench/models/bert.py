"""BERT (Devlin et al. 2019); base: twelve layers of 768, 109,482,240 parameters, 110,106,428 with both heads."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from autolrs.bench.models.attention import Layer

PAD, CLS, SEP, MASK = range(4)


class Bert(nn.Module):
    """Tokens and segments (batch, length) -> (hidden states (batch, length, width), pooled (batch, width))."""

    def __init__(
        self,
        vocabulary: int = 30_522,
        width: int = 768,
        heads: int = 12,
        hidden: int = 3072,
        layers: int = 12,
        longest: int = 512,
        dropout: float = 0.1,
    ) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width, padding_idx=PAD)
        self.positions = nn.Embedding(longest, width)
        self.segments = nn.Embedding(2, width)
        self.norm = nn.LayerNorm(width, eps=1e-12)
        self.dropout = nn.Dropout(dropout)
        self.layers = nn.ModuleList(Layer(width, heads, hidden, nn.GELU(), dropout, eps=1e-12) for _ in range(layers))
        self.pooler = nn.Linear(width, width)
        self.apply(_initialise)

    def forward(self, tokens: Tensor, segments: Tensor) -> tuple[Tensor, Tensor]:
        places = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.dropout(self.norm(self.tokens(tokens) + self.positions(places) + self.segments(segments)))
        mask = tokens != PAD
        for layer in self.layers:
            x = layer(x, mask)
        return x, torch.tanh(self.pooler(x[:, 0]))


class Pretraining(nn.Module):
    """BERT with its two heads: masked tokens, whose output layer shares the embedding, and whether two texts follow."""

    def __init__(self, bert: Bert) -> None:
        super().__init__()
        self.bert = bert
        vocabulary, width = bert.tokens.weight.shape
        self.transform = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.LayerNorm(width, eps=1e-12))
        self.bias = nn.Parameter(torch.zeros(vocabulary))
        self.follows = nn.Linear(width, 2)
        self.transform.apply(_initialise)
        _initialise(self.follows)

    def forward(self, tokens: Tensor, segments: Tensor) -> tuple[Tensor, Tensor]:
        """(hidden states, logits of `follows`); `words` turns chosen hidden states into logits over the vocabulary."""
        states, pooled = self.bert(tokens, segments)
        return states, self.follows(pooled)

    def words(self, states: Tensor) -> Tensor:
        """Logits (n, vocabulary) of hidden states (n, width): only masked places are worth that much work."""
        return functional.linear(self.transform(states), self.bert.tokens.weight, self.bias)


class Classifier(nn.Module):
    """BERT with one linear layer on the pooled state, for fine-tuning."""

    def __init__(self, bert: Bert, classes: int) -> None:
        super().__init__()
        self.bert = bert
        self.dropout = nn.Dropout(0.1)
        self.head = nn.Linear(bert.pooler.out_features, classes)
        _initialise(self.head)

    def forward(self, tokens: Tensor, segments: Tensor) -> Tensor:
        logits: Tensor = self.head(self.dropout(self.bert(tokens, segments)[1]))
        return logits


class Spans(nn.Module):
    """BERT with one linear layer on each token's state: where an answer begins and where it ends, for fine-tuning."""

    def __init__(self, bert: Bert) -> None:
        super().__init__()
        self.bert = bert
        self.head = nn.Linear(bert.pooler.out_features, 2)
        _initialise(self.head)

    def forward(self, tokens: Tensor, segments: Tensor) -> Tensor:
        """Logits (batch, 2, length); -inf at padding."""
        logits: Tensor = self.head(self.bert(tokens, segments)[0]).transpose(1, 2)
        return logits.masked_fill((tokens == PAD)[:, None], -torch.inf)


def _initialise(module: nn.Module) -> None:
    """Normal weights of deviation .02, biases 0, as the original."""
    if isinstance(module, (nn.Linear, nn.Embedding)):
        nn.init.normal_(module.weight, std=0.02)
        if isinstance(module, nn.Embedding) and module.padding_idx is not None:
            with torch.no_grad():
                module.weight[module.padding_idx].zero_()
    if isinstance(module, nn.Linear):
        nn.init.zeros_(module.bias)
