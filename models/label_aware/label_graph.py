"""The masked label correlation graph and its Gaussian autoencoder (FMMAN eqs 3-8).

Letters: B batch, C labels, d token width. States are -1 unknown, 0 known absent, 1 known present.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from models.label_aware.label_transformer import SelfAttention, uniform_fan_in_
from models.layers.stochastic import StochasticModule

LEAK = 0.2  # negative slope of the LeakyReLU in eq 5


def combine_states(labels: Tensor, states: Tensor, mode: str, table: Tensor | None = None) -> Tensor:
    """Return masked label embeddings Lt (eq 3).

    Args:
        labels: L [C, d], unit rows.
        states: Integers -1, 0, 1 [B, C].
        mode: "mul_scalar": s_c * l_c; "mul_embed": l_c * e(s_c) entry by entry; "add_embed": l_c + e(s_c).
        table: e [3, d], rows for -1, 0, 1; not used by "mul_scalar".

    Returns:
        Lt [B, C, d].
    """
    if mode == "mul_scalar":
        return states.unsqueeze(-1).to(labels.dtype) * labels  # [B, C, 1] * [C, d]
    assert table is not None, f"{mode} needs state embeddings"
    embedded = table[states.long() + 1]  # [B, C, d]
    if mode == "mul_embed":
        return labels * embedded
    assert mode == "add_embed", mode
    return labels + embedded


def cosine_similarity_matrix(vectors: Tensor) -> Tensor:
    """Return the cosine of every pair of rows (eq 4): [..., C, d] -> [..., C, C].

    It is 0, with zero gradient, for a row of zeros.
    """
    squared = vectors.square().sum(-1, keepdim=True)  # [..., C, 1]
    present = squared > 1e-24
    # The inner `where` keeps the root away from 0, where its gradient is infinite and 0 * inf would be NaN.
    unit = torch.where(present, vectors / torch.where(present, squared, 1.0).sqrt(), 0.0)
    return unit @ unit.transpose(-1, -2)


def edge_weights(cosines: Tensor, act: str) -> Tensor:
    """Return Er [..., C, C]: edge weights from cosines ("abs", "clamp", "shift", "raw"), with self loops of 1."""
    if act == "abs":
        strength = cosines.abs()
    elif act == "clamp":
        strength = cosines.clamp(min=0.0)
    elif act == "shift":
        strength = (cosines + 1.0) / 2.0
    else:
        assert act == "raw", act
        strength = cosines
    loops = torch.eye(cosines.shape[-1], dtype=torch.bool, device=cosines.device)
    return torch.where(loops, 1.0, strength)


def adjacency(strength: Tensor, norm: str) -> Tensor:
    """Return A [..., C, C] from Er: "sym" D^-1/2 Er D^-1/2, "row" D^-1 Er, "softmax" over each row, "none" Er itself.

    D is the row sum of magnitudes, which is the row sum wherever strengths are not negative. The self loops
    make it at least 1, so that no label, not even a zero row, divides by zero.
    """
    if norm == "none":
        return strength
    if norm == "softmax":
        return strength.softmax(-1)
    degree = strength.abs().sum(-1)  # [..., C]
    if norm == "row":
        return strength / degree.unsqueeze(-1)
    assert norm == "sym", norm
    root = degree.rsqrt()
    return root.unsqueeze(-1) * strength * root.unsqueeze(-2)


class GaussianGraphAutoencoder(StochasticModule):
    """Gaussian graph attention autoencoder over the labels (eqs 5-8); 2,888,706 parameters at d = 512.

    Args:
        dim: Token width d.
        heads: Attention heads of the decoder.
        scale: Initial value of a in eq 5.
        residual: Add Lt to F.
        noise_scale: Factor on eq 7's noise.

    Attributes:
        scale, shift: The one-layer perceptron a, b on each cosine of eq 5.
    """

    def __init__(
        self, dim: int, heads: int, scale: float = 1.0, residual: bool = False, noise_scale: float = 1.0
    ) -> None:
        super().__init__()
        self.residual, self.noise_scale = residual, noise_scale
        self.W = nn.Linear(dim, dim, bias=False)
        self.V = nn.Linear(dim, dim, bias=False)
        self.U = nn.Linear(dim, dim, bias=False)
        self.scale = nn.Parameter(torch.tensor(float(scale)))
        self.shift = nn.Parameter(torch.tensor(0.0))
        self.decoder_first = SelfAttention(dim, heads)
        self.decoder_norm = nn.LayerNorm(dim)
        self.decoder_last = SelfAttention(dim, heads)

    def encode(self, labels: Tensor, graph: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return (F, mean, deviation), each [B, C, d], from Lt [B, C, d] and A [B, C, C] (eqs 5-7).

        F is drawn around the mean in training and is the mean in eval mode; with ``residual`` Lt is added to F alone.
        The noise is drawn for every ``noise_scale``, so that the factor moves no other random number.
        """
        hidden = graph @ self.W(labels)  # Hg [B, C, d]
        similarity = F.leaky_relu(self.scale * cosine_similarity_matrix(hidden) + self.shift, LEAK)  # eq 5
        attention = similarity.softmax(-1)  # alpha [B, C, C], eq 6
        mean, deviation = attention @ self.V(labels), attention @ self.U(labels)  # mean_i, dev_i [B, C, d]
        features = mean
        if self.training:
            # Independent per entry (diagonal covariance); negative deviations are fine: the noise is symmetric.
            noise = torch.randn(mean.shape, generator=self.source(mean), device=mean.device)
            features = mean + self.noise_scale * noise * deviation
        return (features + labels if self.residual else features), mean, deviation

    def decode(self, features: Tensor) -> Tensor:
        """Return R [B, C, d] from F [B, C, d]: two attention layers over the labels.

        The last has neither residual nor LayerNorm: its targets are unit vectors with entries near 1 / sqrt(d), and
        normalised tokens of variance 1 would be far from them.
        """
        hidden = self.decoder_norm(features + self.decoder_first(features))
        reconstruction: Tensor = self.decoder_last(hidden)
        return reconstruction

    def forward(self, labels: Tensor, graph: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return (F, R, mean, deviation), each [B, C, d], from Lt [B, C, d] and A [B, C, C]."""
        features, mean, deviation = self.encode(labels, graph)
        return features, self.decode(features), mean, deviation


class FrozenRows(nn.Module):
    """Frozen embeddings, equal at all clients and never trained, sent or averaged: a buffer outside the state.

    Args:
        rows: [n, d]; copied.
    """

    rows: Tensor

    def __init__(self, rows: Tensor) -> None:
        super().__init__()
        self.register_buffer("rows", rows.detach().to(torch.float32, copy=True), persistent=False)

    def forward(self) -> Tensor:
        """Return the embeddings [n, d]."""
        return self.rows


class LearnedRows(nn.Module):
    """Label embeddings that are trained and exchanged (C-Tran).

    Args:
        count: Rows n, one per label.
        dim: Token width d.
    """

    def __init__(self, count: int, dim: int) -> None:
        super().__init__()
        self.rows = nn.Parameter(torch.zeros(count, dim))
        uniform_fan_in_(self.rows, dim)  # as C-Tran

    def forward(self) -> Tensor:
        """Return the embeddings [n, d]."""
        return self.rows


def frozen_states(states: Tensor) -> FrozenRows:
    """Return e(s) [3, d] of "add_embed" from the rows [2, d] of absent and present; unknown is zero."""
    assert states.shape[0] == 2, f"two state embeddings, found {states.shape[0]}"
    return FrozenRows(torch.cat([torch.zeros_like(states[:1]), states]))


class StateTable(nn.Module):
    """The vectors e(s) of ``combine_states``: rows for -1, 0, 1.

    For "mul_embed" all three are learned and initialised to -1, 0, 1 everywhere, which is "mul_scalar". For "add_embed"
    unknown is fixed at zero, absent and present are learned (C-Tran).
    """

    def __init__(self, dim: int, mode: str) -> None:
        super().__init__()
        self.mode = mode
        if mode == "mul_embed":
            self.rows = nn.Parameter(torch.tensor([-1.0, 0.0, 1.0]).unsqueeze(-1).repeat(1, dim))
        else:
            self.rows = nn.Parameter(torch.zeros(2, dim))
            uniform_fan_in_(self.rows, dim)

    def forward(self) -> Tensor:
        """Return the embeddings [3, d]."""
        if self.mode == "mul_embed":
            return self.rows
        return torch.cat([torch.zeros_like(self.rows[:1]), self.rows])
