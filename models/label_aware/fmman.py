"""FMMAN's network (docs/algorithms/fmman.md); ``fedlgt`` and ``ctran`` build theirs from its parts.

Letters: B batch, S image tokens, C labels, d token width = the backbone's last width.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from models.classifiers.resnet import ResNetTokens
from models.label_aware.label_graph import (
    FrozenRows,
    GaussianGraphAutoencoder,
    StateTable,
    adjacency,
    combine_states,
    cosine_similarity_matrix,
    edge_weights,
    frozen_states,
)
from models.label_aware.label_transformer import LabelTransformer, sine_positions, uniform_fan_in_
from models.registry import ModelSpec
from models.settings.model import FmmanSettings, ModelSettings

UNKNOWN = -1


class HeadOutput(NamedTuple):
    """The head's output for one batch under one set of states; without the graph None from ``features`` on.

    Attributes:
        logits: [B, C], before the sigmoid.
        z: Embedding of eq 11 [B, d], or [B, 2d] with ``z: concat``.
        masked_labels: Lt [B, C, d] (eq 3), the autoencoder's target.
        features: F [B, C, d] (eq 7).
        reconstruction: R [B, C, d].
        mean, deviation: Of F's Gaussian [B, C, d]; the deviation may be negative.
        strength: Er [B, C, C], edge strengths with unit diagonal.
        adjacency: A [B, C, C], Er normalised.
    """

    logits: Tensor
    z: Tensor
    masked_labels: Tensor
    features: Tensor | None = None
    reconstruction: Tensor | None = None
    mean: Tensor | None = None
    deviation: Tensor | None = None
    strength: Tensor | None = None
    adjacency: Tensor | None = None


class LabelClassifier(nn.Module):
    """Per-label classifier: logit_c = w_c . h_c + b_c, each label token has its own row."""

    def __init__(self, classes: int, dim: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(classes, dim))
        self.bias = nn.Parameter(torch.zeros(classes))
        for tensor in (self.weight, self.bias):  # as a linear layer
            uniform_fan_in_(tensor, dim)

    def forward(self, tokens: Tensor) -> Tensor:
        """Map label tokens [B, C, d] to logits [B, C]."""
        return (tokens * self.weight).sum(-1) + self.bias


class FmmanNetwork(nn.Module):
    """Image tokens and label tokens in one transformer, label tokens from the masked label graph.

    Args:
        settings: The model section, for the image encoder and its input.
        options: Graph, states and transformer.
        labels: A module that returns the label embeddings L [C, d].
        states: A module that returns the state embeddings e [3, d]; None if states are numbers or unused.
    """

    def __init__(
        self, settings: ModelSettings, options: FmmanSettings, labels: nn.Module, states: nn.Module | None
    ) -> None:
        super().__init__()
        self.options = options
        self.backbone = ResNetTokens(settings.backbone, settings.inputs)
        self.labels, self.state_table = labels, states
        classes, dim = self.label_embeddings.shape
        assert dim == self.backbone.width, f"label embeddings {dim} wide, backbone {self.backbone.width}"
        self.graph = (
            GaussianGraphAutoencoder(dim, options.heads, options.gae_scale, options.gae_residual, options.noise_scale)
            if options.use_graph
            else None
        )
        ff = max(1, round(dim * options.ff_ratio))
        self.transformer = LabelTransformer(dim, options.layers, options.heads, ff, options.dropout)
        self.readout = LabelClassifier(classes, dim)

    @property
    def label_embeddings(self) -> Tensor:
        """Return L [C, d]: frozen unit rows, or C-Tran's learned ones."""
        table: Tensor = self.labels()
        return table

    def unknown(self, batch: int) -> Tensor:
        """Return states with every label unknown: -1, int64 [batch, C]."""
        table = self.label_embeddings
        return torch.full((batch, table.shape[0]), UNKNOWN, dtype=torch.int64, device=table.device)

    def encode_image(self, x: Tensor) -> Tensor:
        """Map images [B, 3, H, W], float in [0, 1], to image tokens F_scene [B, S, d], independent of the states."""
        scene = self.backbone(x)  # [B, d, h, w], S = h * w
        tokens: Tensor = scene.flatten(2).transpose(1, 2)
        if self.options.positions == "sine":
            tokens = tokens + sine_positions(scene.shape[2], scene.shape[3], tokens.shape[-1]).to(tokens)
        return tokens

    def _masked_labels(self, states: Tensor) -> Tensor:
        """Return Lt [B, C, d] for states [B, C] (eq 3)."""
        if not self.options.use_state:
            return self.label_embeddings.expand(len(states), -1, -1)
        table = None if self.state_table is None else self.state_table()
        return combine_states(self.label_embeddings, states, self.options.state_combine, table)

    def _label_tokens(self, states: Tensor) -> dict[str, Tensor]:
        """Return ``HeadOutput``'s fields from ``masked_labels`` on for states [B, C] (eqs 3-8)."""
        masked = self._masked_labels(states)
        if self.graph is None:
            return {"masked_labels": masked}
        strength = edge_weights(cosine_similarity_matrix(masked), self.options.edge_act)
        graph = adjacency(strength, self.options.adj_norm)
        features, reconstruction, mean, deviation = self.graph(masked, graph)
        return {
            "masked_labels": masked,
            "features": features,
            "reconstruction": reconstruction,
            "mean": mean,
            "deviation": deviation,
            "strength": strength,
            "adjacency": graph,
        }

    def head(self, tokens: Tensor, states: Tensor) -> HeadOutput:
        """Map image tokens and label states to logits (eqs 3-9).

        Args:
            tokens: Image tokens [B, S, d] of ``encode_image``.
            states: int64 [B, C], -1 unknown, 0 known absent, 1 known present. In eval mode [1, C] are the
                states of all images: without noise the labels' part is then computed once.
        """
        batch, positions = tokens.shape[:2]
        rows, classes = states.shape
        assert classes == self.label_embeddings.shape[0] and rows in ((batch,) if self.training else (1, batch)), (
            f"states {tuple(states.shape)} for {batch} images"
        )
        parts = {
            name: part if rows == batch else part.expand(batch, -1, -1)
            for name, part in self._label_tokens(states).items()
        }
        labels = parts.get("features", parts["masked_labels"])
        hidden = self.transformer(torch.cat([tokens, labels], dim=1))  # H [B, S + C, d]
        z = _embedding(hidden, positions, self.options.z)
        return HeadOutput(self.readout(hidden[:, positions:]), z, **parts)

    def all_unknown(self, x: Tensor) -> HeadOutput:
        """Return the head's output for images x [B, 3, H, W] with every label unknown, as at evaluation."""
        return self.head(self.encode_image(x), self.unknown(len(x) if self.training else 1))

    def embed(self, x: Tensor) -> Tensor:
        """Return the embedding z [B, d] or [B, 2d] of images [B, 3, H, W] in [0, 1] with every label unknown."""
        return self.all_unknown(x).z

    def forward(self, x: Tensor) -> Tensor:
        """Return logits [B, C] of images [B, 3, H, W] in [0, 1] with every label unknown."""
        return self.all_unknown(x).logits


def _embedding(hidden: Tensor, positions: int, choice: str) -> Tensor:
    """Return the embedding z, [B, d] or [B, 2d] from H [B, S + C, d], S = ``positions`` image tokens in front."""
    if choice == "all":
        return hidden.mean(1)
    image, labels = hidden[:, :positions].mean(1), hidden[:, positions:].mean(1)
    return {"image": image, "labels": labels, "concat": torch.cat([image, labels], dim=-1)}[choice]


def build(settings: ModelSettings, spec: ModelSpec) -> FmmanNetwork:
    """Return the network with the spec's label embeddings, and its state embeddings if they are frozen."""
    options, table = settings.fmman, spec.label_embeddings
    assert table is not None and table.shape[0] == len(spec.classes), "one label embedding for each class"
    states: nn.Module | None = None
    if options.use_state and options.state_embeddings == "frozen":
        assert spec.state_embeddings is not None, "frozen states need state embeddings"
        states = frozen_states(spec.state_embeddings)
    elif options.use_state and options.state_combine != "mul_scalar":
        states = StateTable(table.shape[1], options.state_combine)
    return FmmanNetwork(settings, options, FrozenRows(table), states)
