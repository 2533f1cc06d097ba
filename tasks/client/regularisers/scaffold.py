"""SCAFFOLD's correction (Karimireddy et al., ICML 2020, algorithm 1, option II; docs/algorithms/scaffold.md).

The gradient becomes g - c_i + c, here by adding <c - c_i, theta> to the loss. It acts on trained parameters only, never
on buffers, and both control variates start at zero. Plain SGD only: with momentum or Adam (W - theta) / (n lr)
is not a mean gradient.
"""

from dataclasses import replace
from typing import TYPE_CHECKING

from tasks.client.regularisers import Regulariser, RegulariserContext

if TYPE_CHECKING:
    from torch import Tensor

    from tasks.client.objectives import Loss

DESCRIPTION = "control variates: <c - c_i, theta> (SCAFFOLD)"


def mean_gradient(start: "Tensor", trained: "Tensor", steps: int, lr: float) -> "Tensor":
    """Return (W - theta_i) / (n_i lr): the mean of the steps' gradients, corrections included; plain SGD only."""
    return (start - trained) / (steps * lr)


def make(local: RegulariserContext) -> Regulariser:
    """Return one client's regulariser; ``state`` holds c_i and ``server_tensors`` c by parameter name, else zero."""
    return Control(local)


class Control(Regulariser):
    """The correction of one training, and the client's next control variate."""

    def __init__(self, local: RegulariserContext) -> None:
        import torch

        self.lr = local.train.lr
        self.parameters = {name: p for name, p in local.model.named_parameters() if p.requires_grad}
        self.start = {name: p.detach().clone() for name, p in self.parameters.items()}
        zeros = {name: torch.zeros_like(p) for name, p in self.start.items()}
        client = {name: local.state.get(name, zero) for name, zero in zeros.items()}
        self.correction = {name: local.server_tensors.get(name, zero) - client[name] for name, zero in zeros.items()}

    def change(self, loss: "Loss", images: "Tensor") -> "Loss":
        """Return the loss plus <c - c_i, theta>, whose gradient is c - c_i."""
        import torch

        del images
        added = torch.stack([(self.correction[name] * p).sum() for name, p in self.parameters.items()]).sum()
        return replace(loss, total=loss.total + added)

    def finish(self, steps: int) -> "dict[str, Tensor]":
        """Return c_i - c + (W - theta_i) / (n_i lr), by parameter name."""
        return {
            name: mean_gradient(self.start[name], p.detach(), steps, self.lr) - self.correction[name]
            for name, p in self.parameters.items()
        }
