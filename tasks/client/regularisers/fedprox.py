"""FedProx's proximal term (Li et al., MLSys 2020, eq 2; specification 4.10)."""

import dataclasses
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from tasks.client.objectives import Loss
from tasks.client.regularisers import Regulariser, RegulariserContext, no_guide

TITLE = "FedProx: (mu/2) |theta - W|^2 to the global model received this round"


def proximal(parameters: Sequence[Tensor], anchors: Sequence[Tensor], mu: float) -> Tensor:
    """(mu/2) |theta - W|^2, the squared norm over all values; its gradient is mu (theta - W).

    Args:
        parameters: The present parameters, with gradient.
        anchors: The fixed ones, of the same shapes.
        mu: Weight.

    Returns:
        A scalar.
    """
    squares = [(value - anchor).square().sum() for value, anchor in zip(parameters, anchors, strict=True)]
    return 0.5 * mu * torch.stack(squares).sum()


def trainable(model: nn.Module) -> dict[str, nn.Parameter]:
    """The parameters with gradient by name: what a term may pull at. Buffers are none of its business."""
    return {name: value for name, value in model.named_parameters() if value.requires_grad}


class Prox(Regulariser):
    """The term around fixed anchors: a copy of the weights that training starts from."""

    def __init__(self, scene: RegulariserContext) -> None:
        self.mu = scene.values["mu"]
        self.parameters = list(trainable(scene.model).values())
        self.anchors = [value.detach().clone() for value in self.parameters]  # a copy, else it moves with the model

    def change(self, loss: Loss, images: Tensor) -> Loss:
        """The loss plus the term, reported as ``proximal``."""
        del images
        term = proximal(self.parameters, self.anchors, self.mu)
        return dataclasses.replace(loss, total=loss.total + term, sums=loss.sums | {"proximal": (term.detach(), 1.0)})


needs_guide = no_guide


def make(scene: RegulariserContext) -> Regulariser:
    """The term for one client; with ``mu`` 0 the neutral one, so that the training is FedAvg's bit for bit."""
    return Prox(scene) if scene.values["mu"] else Regulariser()
