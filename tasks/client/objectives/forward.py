"""Logits, and the features that they are read from, of any network that maps images to logits."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from torch import Tensor, nn


def forward_of(model: "nn.Module") -> "Callable[[Tensor], tuple[Tensor, Tensor | None]]":
    """``forward(images [B, 3, S, S]) -> (logits [B, C], features [B, F])`` of a network.

    The features are None but for classifiers, whose one linear layer ``readout`` reads them: elsewhere they would cost
    a second pass.
    """
    from torch import nn

    network = cast("Any", model)
    if not isinstance(getattr(network, "readout", None), nn.Linear):
        return lambda images: (network(images), None)

    def forward(images: "Tensor") -> "tuple[Tensor, Tensor | None]":
        features = network.features(images)
        return network.readout(features), features

    return forward
