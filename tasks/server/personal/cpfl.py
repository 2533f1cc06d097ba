"""CPFL's server, a reconstruction from the abstract: weights between clients by the earth mover's distance.

docs/algorithms/cpfl.md says what is known and what is our reading. D_k is the change of client k's parameters.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np
from pydantic import Field

from models.settings.section import Section
from tasks.server.aggregators import Aggregator, Mixing
from tasks.server.personal.client_mixtures import client_mixtures
from tasks.server.personal.network_layers import WHOLE, network_layers

if TYPE_CHECKING:
    from tasks.server.aggregators.received import Received

DESCRIPTION = "CPFL (reconstruction): a mixture for each client, by the earth mover's distance between updates"


class Settings(Section):
    """How the weights between clients are made."""

    compare: Literal["updates", "weights"] = Field(
        "updates", description="What the values are of: the change in the round, or the trained model."
    )
    self_weight: float = Field(
        0.5, ge=0, le=1, description="lambda, the weight of a client's own model; with 1 clients train locally."
    )
    tau: float = Field(0.5, gt=0, description="Scale of the distances, as a share of their mean over pairs.")
    quantiles: int = Field(
        1000, ge=2, description="Quantiles that stand for the values of a model; fewer values are compared exactly."
    )


def quantile_sketch(values: np.ndarray, q: int) -> np.ndarray:
    """Return the sorted values [P], or of more than q values the quantiles (r + 1/2) / q, r = 0..q-1, [q]; float64."""
    ordered = np.sort(values)
    if len(ordered) > q:
        ordered = ordered[((np.arange(q) + 0.5) * len(ordered) / q).astype(np.int64)]
    return ordered.astype(np.float64)


def emd_matrix(sketches: np.ndarray) -> np.ndarray:
    """Return EMD(i, j) = mean_r |h_i[r] - h_j[r]|, [N, N], of sorted values h [N, q]: the Wasserstein-1 distance."""
    return np.stack([np.abs(sketches - row).mean(axis=1) for row in sketches])


def emd_weights(distances: np.ndarray, self_weight: float, tau: float) -> np.ndarray:
    """Return a_ij = (1 - lambda) s_ij / sum_{h != i} s_ih and a_ii = lambda, [N, N]; rows sum to 1.

    s_ij = exp(-EMD(i, j) / (tau m)), m the mean of EMD over pairs. A single client has weight 1; clients that are all
    alike weigh alike.

    Args:
        distances: EMD [N, N], symmetric, 0 on the diagonal.
        self_weight: lambda.
        tau: The scale.
    """
    count = len(distances)
    if count == 1:
        return np.ones((1, 1))
    mean = distances.sum() / (count * (count - 1))
    logits = -distances / (tau * mean) if mean > 0 else np.zeros_like(distances)
    np.fill_diagonal(logits, -np.inf)
    similar = np.exp(logits - logits.max(axis=1, keepdims=True))
    weights: np.ndarray = (1 - self_weight) * similar / similar.sum(axis=1, keepdims=True)
    np.fill_diagonal(weights, self_weight)
    return weights


class Cpfl(Aggregator):
    """The global model is the mean with the prior weights; client i's model is sum_j a_ij w_j."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    def weigh(self, received: "Received") -> Mixing:
        """Return the global model's weights and one row for each client."""
        layers = network_layers(received.schema, received.files[0].entries, "model")
        names = layers.parameters[WHOLE]
        places = range(len(received.updates))
        sketches = np.stack(
            [quantile_sketch(self._values(received, i, names), self.settings.quantiles) for i in places]
        )
        weights = emd_weights(emd_matrix(sketches), self.settings.self_weight, self.settings.tau)
        return client_mixtures(received, {WHOLE: weights.tolist()}, layers.members)

    def _values(self, received: "Received", index: int, names: Sequence[str]) -> np.ndarray:
        """Return the values [P], float32, of one update: a model is in memory at a time."""
        parts = []
        for name in names:
            size = received.files[index].entries[name].numel
            values = received.files[index].read(name, 0, size).double()
            if self.settings.compare == "updates":
                assert received.starts is not None, "the round gives every client's start"
                values = values - received.starts[index].read(name, 0, size).double()
            parts.append(values.float().reshape(-1).numpy())
        return np.concatenate(parts)


def make(settings: Settings) -> Aggregator:
    """Return the aggregator."""
    return Cpfl(settings)
