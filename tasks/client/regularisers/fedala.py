"""FedALA's adaptive local aggregation (Zhang et al., AAAI 2023, eqs 4 to 6; docs/algorithms/fedala.md).

It adds nothing to the loss: before training it mixes the received model and the client's last one, entry by entry.
"""

from collections.abc import Mapping, Sequence
from statistics import pstdev
from typing import TYPE_CHECKING

import torch

from models.errors import UserError
from tasks.client.batches import TrainingError
from tasks.client.regularisers import Regulariser, RegulariserContext

if TYPE_CHECKING:
    from torch import Tensor

    from tasks.client.objectives import Step
    from tasks.client.regularisers import Epoch

DESCRIPTION = "FedALA: initial weights between the client's last model and the global one, learned entry by entry"


def mixed(own: "Tensor", received: "Tensor", weight: "Tensor") -> "Tensor":
    """Return theta_i + (W - theta_i) A_i (eq 4), all of one shape: 0 is the client's entry, 1 the global one."""
    return own + (received - own) * weight


def next_weight(weight: "Tensor", gradient: "Tensor", gap: "Tensor", eta: float) -> "Tensor":
    """Return A_i - eta (gradient (W - theta_i)) within 0 to 1 (eqs 5 and 6), all of one shape.

    Args:
        weight: A_i.
        gradient: Of the loss, by the mixed parameter.
        gap: W - theta_i.
        eta: Learning rate of the weights.
    """
    return (weight - eta * gradient * gap).clamp(0, 1)


def converged(losses: Sequence[float], window: int, threshold: float) -> bool:
    """Return whether the last ``window`` of more losses than that have a standard deviation below ``threshold``."""
    return len(losses) > window and pstdev(losses[-window:]) < threshold


class AdaptiveAggregation(Regulariser):
    """The mixture of the chosen layers; keeps their trained parameters and their weights A_i at the client."""

    def __init__(self, local: RegulariserContext) -> None:
        self.values, self.model, layers = local.values, local.model, tuple(local.values["layers"])
        named = {name: value for name, value in local.model.named_parameters() if value.requires_grad}
        self.parameters = {name: value for name, value in named.items() if name.startswith(layers)}
        if lacking := [prefix for prefix in layers if not any(name.startswith(prefix) for name in named)]:
            raise UserError(
                "no trained parameter has a name that begins so",
                where="method.fedala.layers",
                expected=f"the beginning of one of: {', '.join(named)}",
                found=", ".join(lacking),
            )
        self.own = {name: local.state[f"own/{name}"] for name in self.parameters} if local.state else {}
        learned = (name for name in self.parameters if f"weight/{name}" in local.state)
        self.weights = {name: local.state[f"weight/{name}"] for name in learned}

    def initialise(self, step: "Step", epoch: "Epoch") -> None:
        """Learn the weights and mix; until they converge in the second training, in one pass later, never before.

        Raises:
            TrainingError: If the loss is not finite.
        """
        if not self.own:
            return
        received = {name: value.detach().clone() for name, value in self.parameters.items()}
        buffers = {name: value.detach().clone() for name, value in self.model.named_buffers()}
        first = not self.weights
        self.weights = self.weights or {name: torch.ones_like(value) for name, value in received.items()}
        losses: list[float] = []
        while len(losses) < (self.values["max_passes"] if first else 1):
            losses.append(self._pass(step, epoch, received))
            if converged(losses, self.values["window"], self.values["threshold"]):
                break
        self._mix(received)
        with torch.no_grad():  # BatchNorm has seen the batches: its statistics are the received ones again
            for name, value in self.model.named_buffers():
                value.copy_(buffers[name])

    def _pass(self, step: "Step", epoch: "Epoch", received: "Mapping[str, Tensor]") -> float:
        """Do one step of the weights for each batch; return the mean loss."""
        losses = []
        for batch in epoch(self.values["share"]):
            self._mix(received)
            total = step(*batch).total
            losses.append(float(total.detach()))
            gradients = torch.autograd.grad(total, list(self.parameters.values()), allow_unused=True)
            for (name, own), gradient in zip(self.own.items(), gradients, strict=True):
                if gradient is not None:
                    gap = received[name] - own
                    self.weights[name] = next_weight(self.weights[name], gradient, gap, self.values["eta"])
        mean = sum(losses) / len(losses) if losses else float("nan")
        if not torch.isfinite(torch.tensor(mean)):
            raise TrainingError("the loss is not finite before the first step; try a smaller method.fedala.eta")
        return mean

    def _mix(self, received: "Mapping[str, Tensor]") -> None:
        """Give the network the mixture of the present weights."""
        with torch.no_grad():
            for name, value in self.parameters.items():
                value.copy_(mixed(self.own[name], received[name], self.weights[name]))

    def finish(self, steps: int) -> "dict[str, Tensor]":
        """Return the layers' trained parameters and, once they are learned, their weights."""
        del steps
        own = {f"own/{name}": value.detach().clone() for name, value in self.parameters.items()}
        return own | {f"weight/{name}": value for name, value in self.weights.items()}


def make(local: RegulariserContext) -> Regulariser:
    """Return the regulariser of one client; without layers the neutral one: FedAvg bit for bit, nothing is kept."""
    return AdaptiveAggregation(local) if local.values["layers"] else Regulariser()
