"""SCAFFOLD's server step: the model, and the control variate c of all clients (Karimireddy et al., ICML 2020).

A client's new control variate is c_i - c + (W - theta_i) / (n_i lr) (the regulariser ``scaffold``). The server knows
all but c_i, so it computes the changes itself and clients upload nothing beside the model
(docs/algorithms/scaffold.md).
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from models.settings.section import Section
from tasks.client.regularisers.scaffold import mean_gradient
from tasks.server.aggregation import moved, sample_count_weights
from tasks.server.aggregators import Aggregator, Combined, Mixing, TensorJob, start_of

if TYPE_CHECKING:
    from torch import Tensor

    from tasks.server.aggregators.received import Received

DESCRIPTION = "SCAFFOLD: the mean change, and the control variate of all clients (Karimireddy et al., ICML 2020)"


class Settings(Section):
    """What is minimised."""

    weighting: Literal["uniform", "size"] = Field(
        "uniform", description="The plain mean of the clients' losses, or their mean weighted by sample count."
    )


def new_control(control: "Tensor", gradients: "Sequence[Tensor]", fractions: Sequence[float]) -> "Tensor":
    """Return the new c = c + sum_i q_i (c_i_new - c_i), where the change of a client is -c + its mean gradient.

    Args:
        control: c of one parameter, float64.
        gradients: Mean gradients of the clients that took part, float64, same shape.
        fractions: q_i: 1 / n of ALL n clients, or M_i / sum M over all. They sum to 1 only if all took part.
    """
    out = control.clone()
    for gradient, fraction in zip(gradients, fractions, strict=True):
        out.add_(gradient - control, alpha=fraction)
    return out


class ControlVariate(Aggregator):
    """Parameters move by the mean change; the aggregator's own tensors are c, by the parameters' names.

    ``facts`` are ``lr``, the clients' learning rate of the round, and ``sizes``, the sample count of every client of
    the partition.
    """

    def __init__(self, settings: Settings) -> None:
        self.weighting = settings.weighting
        self.steps: list[int] = []
        self.fractions: list[float] = []
        self.sizes: list[float] = []
        self.lr = 0.0

    def weigh(self, received: "Received") -> Mixing:
        """Return w_i, and keep the steps, q_i and the buffers' weights."""
        counted = received.facts["sizes"]
        sizes = counted if self.weighting == "size" else dict.fromkeys(counted, 1)
        own = [sizes[update.client] for update in received.updates]
        self.steps, self.lr = [update.steps for update in received.updates], received.facts["lr"]
        self.fractions = [size / sum(sizes.values()) for size in own]
        self.sizes = sample_count_weights([update.samples for update in received.updates])
        return Mixing(("global",), ([size / sum(own) for size in own],))

    def combine(self, tensor: TensorJob) -> Combined:
        """Return W + sum_i w_i (theta_i - W) and the new c of a parameter, the mean by sample count of a buffer."""
        if tensor.spec.kind != "parameter":
            return Combined(self.average(replace(tensor, weights=[self.sizes[i] for i in tensor.clients])))
        w = start_of(tensor)
        gradients = [
            mean_gradient(w.double(), value.double(), self.steps[i], self.lr)
            for value, i in zip(tensor.values, tensor.clients, strict=True)
        ]
        c = tensor.before[""].double() if tensor.before else w.double().zero_()
        control = new_control(c, gradients, [self.fractions[i] for i in tensor.clients]).to(w.dtype)
        return Combined(moved(w, tensor.values, tensor.weights), {"": control})


def make(settings: Settings) -> Aggregator:
    """Return the aggregator."""
    return ControlVariate(settings)
