"""A network for export: images in, probabilities out."""

from typing import Literal

from torch import Tensor, nn


def activate(logits: Tensor, activation: Literal["sigmoid", "softmax"]) -> Tensor:
    """Turn logits [N, C] into probabilities [N, C]: of each class by itself, or of all classes together."""
    return logits.softmax(dim=-1) if activation == "softmax" else logits.sigmoid()


class Probabilities(nn.Module):
    """The activation on top of a network.

    Args:
        network: Maps images float32 [N, 3, S, S] in 0..1 to logits [N, C].
        activation: ``sigmoid`` for images with any number of labels, ``softmax`` for exactly one.
    """

    def __init__(self, network: nn.Module, activation: Literal["sigmoid", "softmax"] = "sigmoid") -> None:
        super().__init__()
        self.network = network
        self.activation: Literal["sigmoid", "softmax"] = activation

    def forward(self, images: Tensor) -> Tensor:
        """Map images [N, 3, S, S] in 0..1 to probabilities [N, C]."""
        return activate(self.network(images), self.activation)
