"""FedNova: clients with more local steps do not count more (Wang et al., NeurIPS 2020; docs/algorithms/fednova.md)."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pydantic import Field

from models.settings.section import Section
from tasks.server.aggregation import moved, sample_count_weights
from tasks.server.aggregators import Aggregator, Combined, Mixing, TensorJob, start_of

if TYPE_CHECKING:
    from tasks.server.aggregators.received import Received

DESCRIPTION = "FedNova: each client's change per step (Wang et al., NeurIPS 2020)"


class Settings(Section):
    """What the steps of the local loop are."""

    momentum: float = Field(0.0, ge=0, lt=1, description="Momentum of the clients' SGD; 0 for other optimisers.")


def effective_steps(steps: int, momentum: float) -> float:
    """Return a_i: the length of n_i SGD steps in mean gradients, in units of the learning rate.

    Without momentum n_i; with momentum r: (n_i - r (1 - r^n_i) / (1 - r)) / (1 - r). For Adam a_i is not defined, and
    n_i is used (momentum 0).
    """
    return (steps - momentum * (1 - momentum**steps) / (1 - momentum)) / (1 - momentum)


def nova_coefficients(steps: Sequence[float], weights: Sequence[float]) -> list[float]:
    """Return f_i of W <- W + sum_i f_i (theta_i - W): (sum_j p_j a_j) p_i / a_i.

    This is the paper's W - (sum p_i a_i) sum p_i d_i with d_i = (W - theta_i) / a_i. Equal a_i give f_i = p_i.

    Args:
        steps: a_i of each client, above 0.
        weights: p_i, summing to 1.
    """
    return [
        weight * math.fsum(p * (a / own_steps) for p, a in zip(weights, steps, strict=True))
        for weight, own_steps in zip(weights, steps, strict=True)
    ]


class Nova(Aggregator):
    """Parameters move by ``nova_coefficients``; buffers are weighted by sample count."""

    def __init__(self, settings: Settings) -> None:
        self.momentum = settings.momentum
        self.coefficients: list[float] = []

    def weigh(self, received: "Received") -> Mixing:
        """Return the sample counts' weights, and keep the coefficients."""
        weights = sample_count_weights([update.samples for update in received.updates])
        steps = [effective_steps(update.steps, self.momentum) for update in received.updates]
        self.coefficients = nova_coefficients(steps, weights)
        return Mixing(("global",), (weights,))

    def combine(self, tensor: TensorJob) -> Combined:
        """Return W + sum_i f_i (theta_i - W) of a parameter, the mean of a buffer."""
        if tensor.spec.kind != "parameter":
            return Combined(self.average(tensor))
        return Combined(moved(start_of(tensor), tensor.values, [self.coefficients[i] for i in tensor.clients]))


def make(settings: Settings) -> Aggregator:
    """Return the aggregator."""
    return Nova(settings)
