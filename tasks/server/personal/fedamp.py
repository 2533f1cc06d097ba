"""FedAMP's server: each client's cloud model is a mixture of all, by their distances or cosines.

Y. Huang et al., *Personalized Cross-Silo Federated Learning on Non-IID Data*, AAAI 2021 (arXiv 2007.03797), FedAMP and
HeurFedAMP; docs/algorithms/fedamp.md.
"""

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from models.settings.section import Section
from tasks.server.aggregators import Aggregator, Mixing
from tasks.server.personal.client_mixtures import client_mixtures
from tasks.server.personal.network_layers import WHOLE, network_layers

if TYPE_CHECKING:
    from torch import Tensor

    from tasks.server.aggregators.received import Received

DESCRIPTION = "FedAMP: a mixture for each client, by the distances or cosines of whole models"


class Settings(Section):
    """How the weights between clients are made; ``alpha`` is the round's."""

    version: Literal["heuristic", "distance"] = "heuristic"
    sigma: float = Field(25.0, gt=0)
    self_weight: float | None = Field(None, ge=0, le=1)
    alpha: float = Field(1.0, gt=0)


def distance_weights(squares: "Tensor", alpha: float, sigma: float) -> "Tensor":
    """Return xi_ij = alpha A'(|w_i - w_j|^2) with A'(x) = exp(-x / sigma) / sigma, and xi_ii = 1 - sum_j xi_ij.

    Alpha is bounded by the largest value with which no xi_ii is negative.

    Args:
        squares: |w_i - w_j|^2, [N, N].
        alpha: The step alpha_t.
        sigma: Width of the kernel.

    Returns:
        [N, N], rows sum to 1.
    """
    import torch

    slopes = (torch.exp(-squares / sigma) / sigma).fill_diagonal_(0)
    largest = float(slopes.sum(1).max())
    weights = slopes * min(alpha, 1 / largest if largest > 0 else alpha)
    weights += torch.diag((1 - weights.sum(1)).clamp(min=0))
    return weights / weights.sum(1, keepdim=True)  # of rounding errors


def heuristic_weights(cosines: "Tensor", sigma: float, self_weight: float) -> "Tensor":
    """Return xi_ij = (1 - s) exp(sigma cos_ij) / sum_{h != i} exp(sigma cos_ih), and xi_ii = s.

    Args:
        cosines: Of the clients' whole models, [N, N].
        sigma: Inverse temperature.
        self_weight: s.

    Returns:
        [N, N], rows sum to 1.
    """
    from tasks.server.personal.attention import softmax_weights

    return softmax_weights(sigma * cosines, self_weight)


class Amp(Aggregator):
    """The global model is the mean with the prior weights; the client models are the cloud models u_i."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    def weigh(self, received: "Received") -> Mixing:
        """Return the global model's weights and one row for each client."""
        import torch

        from tasks.server.personal.attention import cosines, distances, gram_matrix

        s, count = self.settings, len(received.updates)
        layers = network_layers(received.schema, received.files[0].entries, "model")
        distance = s.version == "distance"
        gram = gram_matrix(received.blocks(layers.parameters[WHOLE]), count, centred=distance)
        if count == 1:
            weights = torch.ones(1, 1, dtype=torch.float64)
        elif distance:
            weights = distance_weights(distances(gram).square(), s.alpha, s.sigma)
        else:
            own = 1 / count if s.self_weight is None else s.self_weight
            weights = heuristic_weights(cosines(gram)[0], s.sigma, own)
        return client_mixtures(received, {WHOLE: weights.tolist()}, layers.members)


def make(settings: Settings) -> Aggregator:
    """Return the aggregator."""
    return Amp(settings)
