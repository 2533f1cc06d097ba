"""SCAFFOLD's correction (Karimireddy et al., ICML 2020, algorithm 1, option II; specification 4.10).

The gradient becomes g - c_i + c, here by adding <c - c_i, theta> to the loss. It acts on trained parameters only, never
on buffers, and both variates start at zero. Right for plain SGD only: with momentum or Adam (W - theta) / (n lr) is no
mean gradient.
"""

from dataclasses import replace
from typing import TYPE_CHECKING

from tasks.client.regularisers import Regulariser, RegulariserContext, no_guide

if TYPE_CHECKING:
    from torch import Tensor

    from tasks.client.objectives import Loss

TITLE = "control variates: <c - c_i, theta> (SCAFFOLD)"


needs_guide = no_guide


def mean_gradient(start: "Tensor", trained: "Tensor", steps: int, lr: float) -> "Tensor":
    """(W - theta_i) / (n_i lr): the mean of the steps' gradients, corrections included; plain SGD only."""
    return (start - trained) / (steps * lr)


def make(scene: RegulariserContext) -> Regulariser:
    """The term of one client; ``state`` holds c_i and ``shared`` c, each by parameter name, zero where missing."""
    return Control(scene)


class Control(Regulariser):
    """The correction of one training, and the client's next variate."""

    def __init__(self, scene: RegulariserContext) -> None:
        import torch

        self.lr = scene.train.lr
        self.parameters = {name: p for name, p in scene.model.named_parameters() if p.requires_grad}
        self.start = {name: p.detach().clone() for name, p in self.parameters.items()}
        zeros = {name: torch.zeros_like(p) for name, p in self.start.items()}
        self.own = {name: scene.state.get(name, zero) for name, zero in zeros.items()}
        self.correction = {name: scene.shared.get(name, zero) - self.own[name] for name, zero in zeros.items()}

    def change(self, loss: "Loss", images: "Tensor") -> "Loss":
        """The loss plus <c - c_i, theta>, whose gradient is c - c_i."""
        import torch

        del images
        added = torch.stack([(self.correction[name] * p).sum() for name, p in self.parameters.items()]).sum()
        return replace(loss, total=loss.total + added)

    def finish(self, steps: int) -> "dict[str, Tensor]":
        """c_i - c + (W - theta_i) / (n_i lr), by parameter name."""
        return {
            name: mean_gradient(self.start[name], p.detach(), steps, self.lr) - self.correction[name]
            for name, p in self.parameters.items()
        }
