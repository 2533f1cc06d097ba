"""FMMAN's client network (spec 1.1-1.7). With ``use_graph`` off and ``add_embed`` states it has FedLGT's shape.

Letters: B batch, S image tokens, C labels, d token width = the backbone's last width.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from models.backbones import ResNetTokens
from models.label_graph import (
    GaussianGraphAutoencoder,
    StateTable,
    adjacency,
    combine_states,
    edge_strength,
    edges,
)
from models.label_transformer import LabelTransformer, uniform_by_fan_in
from models.settings import ModelSettings

UNKNOWN = -1


class HeadOutput(NamedTuple):
    """What the head computes for one batch under one set of states; the last four are None without the graph.

    Attributes:
        logits: [B, C], before the sigmoid.
        z: Contrastive feature [B, d], or [B, 2d] with ``z: concat``.
        masked_labels: Lt [B, C, d] (eq 3), the autoencoder's target.
        features: F [B, C, d] (eq 7).
        reconstruction: R [B, C, d].
        strength: Er [B, C, C], edge strengths with unit diagonal.
        adjacency: A [B, C, C], Er normalised.
    """

    logits: Tensor
    z: Tensor
    masked_labels: Tensor
    features: Tensor | None
    reconstruction: Tensor | None
    strength: Tensor | None
    adjacency: Tensor | None


class LabelReadout(nn.Module):
    """logit_c = w_c . h_c + b_c: each label token is read by its own row (spec 1.7)."""

    def __init__(self, classes: int, dim: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(classes, dim))
        self.bias = nn.Parameter(torch.zeros(classes))

    def initialise_parameters(self, generator: torch.Generator) -> None:
        """Uniform within 1 / sqrt(d), as the linear layer that it stands for."""
        uniform_by_fan_in(self.weight, self.weight.shape[1], generator)
        uniform_by_fan_in(self.bias, self.weight.shape[1], generator)

    def forward(self, tokens: Tensor) -> Tensor:
        """Label tokens [B, C, d] to logits [B, C]."""
        return (tokens * self.weight).sum(-1) + self.bias


class FmmanNetwork(nn.Module):
    """Image tokens and label tokens in one transformer, label tokens from the masked label graph.

    Args:
        settings: The whole model section.
        label_table: L [C, d], unit rows, frozen.

    Attributes:
        label_table: L, a buffer outside the state dict: equal on all clients, so never sent or averaged.
    """

    label_table: Tensor

    def __init__(self, settings: ModelSettings, label_table: Tensor) -> None:
        super().__init__()
        options = settings.fmman
        self.options = options
        self.backbone = ResNetTokens(settings.backbone)
        classes, dim = label_table.shape
        assert dim == self.backbone.width, f"label table {dim} wide, backbone {self.backbone.width}"
        self.register_buffer("label_table", label_table.detach().to(torch.float32, copy=True), persistent=False)
        self.state_table = None if options.state_combine == "mul_scalar" else StateTable(dim, options.state_combine)
        self.graph = (
            GaussianGraphAutoencoder(dim, options.heads, options.gae_scale, options.gae_residual)
            if options.use_graph
            else None
        )
        ff = max(1, round(dim * options.ff_ratio))
        self.transformer = LabelTransformer(dim, options.layers, options.heads, ff, options.dropout)
        self.readout = LabelReadout(classes, dim)

    def unknown(self, batch: int) -> Tensor:
        """States of images nothing is known about: -1 everywhere, int64 [batch, C]."""
        table = self.label_table
        return torch.full((batch, table.shape[0]), UNKNOWN, dtype=torch.int64, device=table.device)

    def encode_image(self, x: Tensor) -> Tensor:
        """Images [B, 3, H, W], float in [0, 1], to image tokens F_scene [B, S, d]; states play no part here."""
        tokens: Tensor = self.backbone(x).flatten(2).transpose(1, 2)
        return tokens

    def _label_tokens(self, states: Tensor) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None, Tensor | None]:
        """(label tokens, Lt, R, Er, A) for states [B, C]; the last three are None without the graph."""
        table = None if self.state_table is None else self.state_table()
        masked = combine_states(self.label_table, states, self.options.state_combine, table)  # [B, C, d]
        if self.graph is None:
            return masked, masked, None, None, None
        strength = edge_strength(edges(masked), self.options.edge_act)
        graph = adjacency(strength, self.options.adj_norm)
        features, reconstruction = self.graph(masked, graph)
        return features, masked, reconstruction, strength, graph

    def head(self, tokens: Tensor, states: Tensor) -> HeadOutput:
        """Label states in, logits out (eqs 3-9).

        Args:
            tokens: Image tokens [B, S, d] of ``encode_image``.
            states: int64 [B, C], -1 unknown, 0 known absent, 1 known present. In eval mode [1, C] stands for the
                same states for all images: without noise the labels' part is then computed once.
        """
        batch, positions = tokens.shape[:2]
        rows, classes = states.shape
        assert classes == self.label_table.shape[0] and rows in ((batch,) if self.training else (1, batch)), (
            f"states {tuple(states.shape)} for {batch} images"
        )
        labels, masked, reconstruction, strength, graph = (
            part if part is None or rows == batch else part.expand(batch, -1, -1) for part in self._label_tokens(states)
        )
        assert labels is not None and masked is not None
        hidden = self.transformer(torch.cat([tokens, labels], dim=1))  # H [B, S + C, d]
        return HeadOutput(
            logits=self.readout(hidden[:, positions:]),
            z=_contrastive_feature(hidden, positions, self.options.z),
            masked_labels=masked,
            features=None if self.graph is None else labels,
            reconstruction=reconstruction,
            strength=strength,
            adjacency=graph,
        )

    def forward(self, x: Tensor) -> Tensor:
        """Logits [B, C] of images [B, 3, H, W] in [0, 1] with every label unknown: the use after training (D14)."""
        tokens = self.encode_image(x)
        return self.head(tokens, self.unknown(len(x) if self.training else 1)).logits


def _contrastive_feature(hidden: Tensor, positions: int, choice: str) -> Tensor:
    """The feature z, [B, d] or [B, 2d] from H [B, S + C, d], S = ``positions`` image tokens in front."""
    if choice == "all":
        return hidden.mean(1)
    image, labels = hidden[:, :positions].mean(1), hidden[:, positions:].mean(1)
    return {"image": image, "labels": labels, "concat": torch.cat([image, labels], dim=-1)}[choice]


def build(settings: ModelSettings, classes: Sequence[str], label_table: Tensor | None) -> FmmanNetwork:
    """The network for ``classes`` with their embeddings ``label_table`` [C, d]."""
    assert label_table is not None and label_table.shape[0] == len(classes), "one label embedding for each class"
    return FmmanNetwork(settings, label_table)
