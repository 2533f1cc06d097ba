"""Logits and embeddings of any network that maps images to logits."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from torch import Tensor, nn


@runtime_checkable
class EmbeddingNetwork(Protocol):
    """A network whose head ``readout`` reads one embedding per image."""

    readout: "nn.Module"

    def embed(self, x: "Tensor") -> "Tensor":
        """Return embeddings [B, F] of images [B, 3, S, S]."""
        ...


def forward_with_embedding(model: "nn.Module") -> "Callable[[Tensor], tuple[Tensor, Tensor | None]]":
    """Return ``forward(images [B, 3, S, S]) -> (logits [B, C], embedding [B, F])`` of a network.

    The embedding is None unless the network's head is one linear layer (plain classifiers): elsewhere it would cost a
    second pass.
    """
    from torch import nn

    if not (isinstance(model, EmbeddingNetwork) and isinstance(model.readout, nn.Linear)):
        return lambda images: (model(images), None)

    def forward(images: "Tensor") -> "tuple[Tensor, Tensor | None]":
        embedding = model.embed(images)
        return model.readout(embedding), embedding

    return forward
