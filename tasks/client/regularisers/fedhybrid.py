"""FedHybrid's local problem: a proximal term and a dual variable per parameter (docs/algorithms/fedhybrid.md).

X. Niu and E. Wei, "FedHybrid", IEEE Trans. Signal Processing 2023, arXiv 2106.01279, as a primal-dual method
whose primal step is a local training: minimise f_i(x) - <y_i, x> + (mu/2) |x - x_0|^2 from x_0, then
y_i <- y_i + mu (x_0 - x_i). Gradient-type clients only; the paper's Newton-type clients are left out.
"""

import dataclasses
from collections.abc import Sequence

import torch
from torch import Tensor

from tasks.client.objectives import Loss
from tasks.client.regularisers import Regulariser, RegulariserContext
from tasks.client.regularisers.fedprox import proximal, trainable

DESCRIPTION = "FedHybrid: (mu/2) |x - x_0|^2 and the client's own dual variable y_i"


def inner_product(duals: Sequence[Tensor], parameters: Sequence[Tensor]) -> Tensor:
    """Return <y, x> over all values; its gradient is y. A scalar."""
    return torch.stack([(y * x).sum() for y, x in zip(duals, parameters, strict=True)]).sum()


def next_dual(y: Tensor, x_0: Tensor, x_i: Tensor, mu: float) -> Tensor:
    """Return y_i + mu (x_0 - x_i), any shape: at the local minimum it is the gradient of f_i there."""
    return y + mu * (x_0 - x_i)


class Dual(Regulariser):
    """The augmented local loss; keeps the duals y_i, which are 0 before the client's first training."""

    def __init__(self, local: RegulariserContext) -> None:
        self.mu, self.scale = local.values["mu"], local.values["scale"]
        self.parameters = trainable(local.model)
        self.received = {name: value.detach().clone() for name, value in self.parameters.items()}
        self.duals = {
            name: local.state[name].to(weights) if local.state else torch.zeros_like(weights)
            for name, weights in self.received.items()
        }

    def change(self, loss: Loss, images: Tensor) -> Loss:
        """Return scale f_i - <y_i, x> + (mu/2) |x - x_0|^2; reports the parts ``dual`` and ``proximal``."""
        del images
        values = list(self.parameters.values())
        dual = -inner_product(list(self.duals.values()), values)
        near = proximal(values, list(self.received.values()), self.mu)
        sums = loss.sums | {"dual": (dual.detach(), 1.0), "proximal": (near.detach(), 1.0)}
        return dataclasses.replace(loss, total=self.scale * loss.total + dual + near, sums=sums)

    def finish(self, steps: int) -> dict[str, Tensor]:
        """Return the duals after this training, by parameter name."""
        del steps
        return {
            name: next_dual(self.duals[name], self.received[name], value.detach(), self.mu)
            for name, value in self.parameters.items()
        }


def make(local: RegulariserContext) -> Regulariser:
    """Return the regulariser of one client, with the values ``mu`` and ``scale`` (the factor on f_i)."""
    return Dual(local)
