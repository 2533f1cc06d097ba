"""FedProx's proximal term (Li et al., MLSys 2020, eq 2; docs/algorithms/fedprox.md)."""

import dataclasses
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from tasks.client.objectives import Loss
from tasks.client.regularisers import Regulariser, RegulariserContext

DESCRIPTION = "FedProx: (mu/2) |theta - W|^2 to the global model received this round"


def proximal(parameters: Sequence[Tensor], received: Sequence[Tensor], mu: float) -> Tensor:
    """Return (mu/2) |theta - W|^2, the squared norm over all values; its gradient is mu (theta - W).

    Args:
        parameters: The current parameters, with gradient.
        received: The reference weights W, of the same shapes.
        mu: Weight.

    Returns:
        A scalar.
    """
    squares = [(value - fixed).square().sum() for value, fixed in zip(parameters, received, strict=True)]
    return 0.5 * mu * torch.stack(squares).sum()


def trainable(model: nn.Module) -> dict[str, nn.Parameter]:
    """Return the parameters with gradient by name: what a regulariser acts on. Buffers are left alone."""
    return {name: value for name, value in model.named_parameters() if value.requires_grad}


class Prox(Regulariser):
    """The term around fixed reference weights: a copy of the weights that training starts from."""

    def __init__(self, local: RegulariserContext) -> None:
        self.mu = local.values["mu"]
        self.parameters = list(trainable(local.model).values())
        self.received = [value.detach().clone() for value in self.parameters]  # a copy, else it moves with the model

    def change(self, loss: Loss, images: Tensor) -> Loss:
        """Return the loss plus the term, reported as ``proximal``."""
        del images
        term = proximal(self.parameters, self.received, self.mu)
        return dataclasses.replace(loss, total=loss.total + term, sums=loss.sums | {"proximal": (term.detach(), 1.0)})


def make(local: RegulariserContext) -> Regulariser:
    """Return the regulariser of one client; with ``mu`` 0 the neutral one, so that training is FedAvg's bit for bit."""
    return Prox(local) if local.values["mu"] else Regulariser()
