"""FedHybrid's server step: participants' mean minus the mean dual of all clients (docs/algorithms/fedhybrid.md)."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from pydantic import Field
from torch import Tensor

from models.settings.section import Section
from tasks.server.aggregation import sample_count_weights, weighted_mean
from tasks.server.aggregators import Aggregator, Combined, Mixing, TensorJob, start_of

if TYPE_CHECKING:
    from tasks.server.aggregators.received import Received

DESCRIPTION = "FedHybrid: the plain mean minus the mean dual of all clients (Niu and Wei, IEEE TSP 2023)"


class Settings(Section):
    """The clients' proximal term."""

    mu: float = Field(gt=0, description="Weight of (mu/2) |x - x_0|^2.")


def next_mean_dual(before: Tensor, x_0: Tensor, values: Sequence[Tensor], mu: float, n: int) -> Tensor:
    """Return (1/n) sum of all clients' y_i after a round, for one parameter.

    A participant's dual has changed by mu (x_0 - x_i), which the server computes from the weights that it sent and
    received; the duals of the others have not changed.

    Args:
        before: The mean dual before the round, float64; 0 in the first round.
        x_0: What the participants started from, same shape.
        values: Their x_i, same shape.
        mu: Weight of the proximal term.
        n: Number of ALL clients. With the number of participants, which may differ from round to round, the sum
            would no longer be that of the duals, and the method would converge to another point.

    Returns:
        float64, same shape.
    """
    deltas = weighted_mean([x_0, *values], [float(len(values)), *[-1.0] * len(values)])
    return before + mu / n * deltas


def corrected_mean(values: Sequence[Tensor], mean_dual: Tensor, mu: float) -> Tensor:
    """Return x_0 <- mean of the participants' x_i - mean dual of all clients / mu, for one parameter; float64."""
    return weighted_mean(values, [1 / len(values)] * len(values)) - mean_dual / mu


class MeanDual(Aggregator):
    """Parameters by ``corrected_mean``; the aggregator's own tensors are the mean dual, by the parameters' names.

    ``facts`` are ``clients``, the number of all clients of the partition.
    """

    def __init__(self, settings: Settings) -> None:
        self.mu, self.clients = settings.mu, 0
        self.sizes: list[float] = []

    def weigh(self, received: "Received") -> Mixing:
        """Return equal weights, and keep those of the buffers."""
        self.clients = received.facts["clients"]
        self.sizes = sample_count_weights([update.samples for update in received.updates])
        return received.equal()

    def combine(self, tensor: TensorJob) -> Combined:
        """Return the corrected mean and the next mean dual of a parameter, the mean by sample count of a buffer."""
        if tensor.spec.kind != "parameter":
            return Combined(self.average(replace(tensor, weights=self.sizes)))
        x_0, values = start_of(tensor), tensor.values
        before = tensor.before[""] if tensor.before else torch.zeros(x_0.shape, dtype=torch.float64)
        dual = next_mean_dual(before, x_0, values, self.mu, self.clients)
        return Combined(corrected_mean(values, dual, self.mu), {"": dual})


def make(settings: Settings) -> Aggregator:
    """Return the aggregator."""
    return MeanDual(settings)
