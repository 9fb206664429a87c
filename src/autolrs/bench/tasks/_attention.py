"""One pre-norm transformer block, shared by the language model and the vision transformer.

Written out because `nn.TransformerEncoderLayer` spends most of its time in checks at these widths.
"""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional


class Block(nn.Module):
    """Attention, then a two-layer perceptron, each added to its input; tokens are (batch, length, width)."""

    def __init__(self, width: int, heads: int, hidden: int, causal: bool) -> None:
        super().__init__()
        self.heads, self.causal = heads, causal
        self.norm_attention, self.norm_mlp = nn.LayerNorm(width), nn.LayerNorm(width)
        self.query_key_value = nn.Linear(width, 3 * width)
        self.mix = nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, hidden), nn.ReLU(), nn.Linear(hidden, width))

    def forward(self, tokens: Tensor) -> Tensor:
        batch, length, width = tokens.shape
        packed = self.query_key_value(self.norm_attention(tokens))
        query, key, value = packed.view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        attended = functional.scaled_dot_product_attention(query, key, value, is_causal=self.causal)
        tokens = tokens + self.mix(attended.transpose(1, 2).reshape(batch, length, width))
        out: Tensor = tokens + self.mlp(self.norm_mlp(tokens))
        return out
