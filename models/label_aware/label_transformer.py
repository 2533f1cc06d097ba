"""A post-norm transformer encoder whose dropout draws from a given generator; positions of image tokens.

Letters: B batch, T tokens, d token width, n heads, e = d / n width of a head.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from models.layers.stochastic import SeededDropout


def uniform_fan_in_(tensor: Tensor, fan_in: int) -> None:
    """Fill ``tensor`` uniformly within 1 / sqrt(fan_in), as C-Tran does for embeddings and linear layers."""
    bound = 1.0 / math.sqrt(fan_in)
    nn.init.uniform_(tensor, -bound, bound)


def sine_positions(height: int, width: int, dim: int) -> Tensor:
    """Return positions [height * width, d] of a map's cells, row by row: DETR's sines (Carion et al., ECCV 2020).

    The first half of a position belongs to the row y, the second to the column x. A coordinate counts from 1 and is
    scaled to 2 pi at the far edge; entries 2i and 2i + 1 of a half are sin and cos of it divided by 10000^(4i / d).

    Args:
        height: Rows of the map.
        width: Columns of the map.
        dim: d, a multiple of 4.
    """
    assert dim % 4 == 0, f"{dim} is no multiple of 4"
    divisor = 10000.0 ** (4 * torch.arange(dim // 4, dtype=torch.float64) / dim)  # [d / 4]

    def along(cells: int) -> Tensor:
        angle = 2 * math.pi * torch.arange(1, cells + 1, dtype=torch.float64)[:, None] / cells / divisor
        return torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(1)  # [cells, d / 2]

    rows, columns = along(height)[:, None].expand(-1, width, -1), along(width)[None].expand(height, -1, -1)
    return torch.cat([rows, columns], dim=-1).flatten(0, 1).float()


class StackedProjection(nn.Linear):
    """The three projections of attention, queries, keys, values in this order, stacked in one weight [3d, d].

    Initialised as ``nn.MultiheadAttention``: uniform within sqrt(6 / (d + 3d)), biases 0. C-Tran and FedLGT initialise
    their linear layers again, but not this weight, which in PyTorch belongs to no linear layer.
    """

    def reset_parameters(self) -> None:
        """Initialise weight and bias; called by the constructor."""
        nn.init.xavier_uniform_(self.weight)
        nn.init.zeros_(self.bias)


class SelfAttention(nn.Module):
    """Multi-head self-attention, as ``nn.MultiheadAttention`` but with its own dropout on the attention weights.

    The output projection is initialised as every linear layer, bias included: C-Tran and FedLGT initialise it again.

    Args:
        dim: Token width d.
        heads: Number of heads n, divides d.
        dropout: Probability of dropping an attention weight in training.
    """

    def __init__(self, dim: int, heads: int, dropout: float = 0.0) -> None:
        super().__init__()
        assert dim % heads == 0, f"{heads} heads do not divide {dim}"
        self.heads = heads
        self.in_proj = StackedProjection(dim, 3 * dim)
        self.out_proj = nn.Linear(dim, dim)
        self.dropout = SeededDropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        """Map tokens [B, T, d] to tokens [B, T, d]."""
        batch, tokens, dim = x.shape
        width = dim // self.heads
        # [B, T, 3d] -> [3, B, n, T, e]
        query, key, value = self.in_proj(x).view(batch, tokens, 3, self.heads, width).permute(2, 0, 3, 1, 4)
        scores = query @ key.transpose(-1, -2) / math.sqrt(width)  # [B, n, T, T]
        mixed = self.dropout(scores.softmax(-1)) @ value  # [B, n, T, e]
        out: Tensor = self.out_proj(mixed.transpose(1, 2).reshape(batch, tokens, dim))
        return out


class EncoderLayer(nn.Module):
    """Attention and feed-forward, each followed by residual and LayerNorm; 1,577,984 parameters at d = ff = 512.

    Args:
        dim: Token width d.
        heads: Attention heads.
        ff: Width of the feed-forward part.
        dropout: Probability, for attention weights, both branches and the hidden units.
    """

    def __init__(self, dim: int, heads: int, ff: int, dropout: float) -> None:
        super().__init__()
        self.attention = SelfAttention(dim, heads, dropout)
        self.norm1 = nn.LayerNorm(dim)
        self.linear1 = nn.Linear(dim, ff)
        self.linear2 = nn.Linear(ff, dim)
        self.norm2 = nn.LayerNorm(dim)
        self.dropout = SeededDropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        """Map tokens [B, T, d] to tokens [B, T, d]."""
        x = self.norm1(x + self.dropout(self.attention(x)))
        hidden = self.dropout(F.relu(self.linear1(x)))
        out: Tensor = self.norm2(x + self.dropout(self.linear2(hidden)))
        return out


class LabelTransformer(nn.Module):
    """A LayerNorm on all tokens, then encoder layers; positions, if any, are in the tokens.

    The first norm matters: image tokens are of order 1, unit-length label tokens of order 1 / sqrt(d).
    FMMAN's server clusters clients on the parameters under ``layers.0.``.
    """

    def __init__(self, dim: int, layers: int, heads: int, ff: int, dropout: float) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.layers = nn.ModuleList(EncoderLayer(dim, heads, ff, dropout) for _ in range(layers))

    def forward(self, tokens: Tensor) -> Tensor:
        """Map tokens [B, T, d] to H [B, T, d]."""
        hidden: Tensor = self.norm(tokens)
        for layer in self.layers:
            hidden = layer(hidden)
        return hidden
