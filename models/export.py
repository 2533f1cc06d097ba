"""A network for export: images in, probabilities out."""

from torch import Tensor, nn


class Probabilities(nn.Module):
    """The sigmoid on top of a network.

    Args:
        network: Maps images float32 [N, 3, S, S] in 0..1 to logits [N, C].
    """

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, images: Tensor) -> Tensor:
        """Map images [N, 3, S, S] in 0..1 to probabilities [N, C]."""
        probabilities: Tensor = self.network(images).sigmoid()
        return probabilities
