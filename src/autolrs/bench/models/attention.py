"""Multi-head attention and post-norm layers, shared by the Transformer and BERT."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional


class Attention(nn.Module):
    """Queries (batch, n, width) look at keys and values from (batch, m, width)."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        if width % heads:
            raise ValueError(f"`width` must be a multiple of `heads` ({heads}), got {width}")
        self.heads = heads
        self.query, self.key, self.value, self.mix = (nn.Linear(width, width) for _ in range(4))

    def forward(self, x: Tensor, memory: Tensor, mask: Tensor | None = None, causal: bool = False) -> Tensor:
        """`mask` (batch, m) is True at positions that may be looked at."""
        query, key, value = (
            layer(source).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for layer, source in ((self.query, x), (self.key, memory), (self.value, memory))
        )
        allowed = None
        if mask is not None:
            allowed = mask[:, None, None, :]
            if causal:
                size = x.shape[1]
                allowed = allowed & torch.ones(size, size, dtype=torch.bool, device=x.device).tril()
        seen = functional.scaled_dot_product_attention(
            query, key, value, attn_mask=allowed, is_causal=causal and mask is None
        )
        out: Tensor = self.mix(seen.transpose(1, 2).flatten(2))
        return out


class Layer(nn.Module):
    """Self-attention, attention to a memory if `cross`, two-layer perceptron; each added to its input, then normed."""

    def __init__(
        self,
        width: int,
        heads: int,
        hidden: int,
        activation: nn.Module,
        dropout: float,
        cross: bool = False,
        eps: float = 1e-5,
    ) -> None:
        super().__init__()
        self.attention = Attention(width, heads)
        self.cross = Attention(width, heads) if cross else None
        self.mlp = nn.Sequential(nn.Linear(width, hidden), activation, nn.Linear(hidden, width))
        self.norms = nn.ModuleList(nn.LayerNorm(width, eps=eps) for _ in range(3 if cross else 2))
        self.dropout = nn.Dropout(dropout)

    def forward(
        self,
        x: Tensor,
        mask: Tensor | None = None,
        memory: Tensor | None = None,
        memory_mask: Tensor | None = None,
        causal: bool = False,
    ) -> Tensor:
        x = self.norms[0](x + self.dropout(self.attention(x, x, mask, causal)))
        if self.cross is not None:
            assert memory is not None
            x = self.norms[1](x + self.dropout(self.cross(x, memory, memory_mask)))
        out: Tensor = self.norms[-1](x + self.dropout(self.mlp(x)))
        return out
