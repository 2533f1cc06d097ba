"""FedScrap's server: each client's model is a mixture of all, with attention weights for every layer.

W. Zhang, D. Deng and L. Wang, Electronics 2024, 13(3), 527, algorithm 1; docs/algorithms/fedscrap.md.
"""

from array import array
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tasks.core.round_state import GLOBAL
from tasks.server.aggregators import Aggregator, Mixing
from tasks.server.aggregators.mixing import Row
from tasks.server.personal.attention import CENTRED, TEMPERATURES, attention, gram_matrix, sparse_rows
from tasks.server.personal.attention_settings import AttentionSettings as Settings
from tasks.server.personal.client_mixtures import client_mixtures
from tasks.server.personal.network_layers import network_layers

if TYPE_CHECKING:
    from torch import Tensor

    from tasks.server.aggregators.received import Received

__all__ = ["DESCRIPTION", "LayerAttention", "Settings", "make"]
DESCRIPTION = "FedScrap: a mixture for each client, with attention weights for every layer"


class LayerAttention(Aggregator):
    """The global model is the mean with the prior weights; the client models are mixtures by attention.

    ``facts["stale"]``: clients whose update is of an earlier round. Others may attend to them; they get no new model.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    def weigh(self, received: "Received") -> Mixing:
        """Return the global model's weights and, for every layer, one row of attention per reporting client.

        Raises:
            UserError: If a block is no part of the network.
        """
        s = self.settings
        layers = network_layers(received.schema, received.files[0].entries, s.granularity, s.blocks)
        rows = {layer: self.rows(received, names) for layer, names in layers.parameters.items()}
        kept = {name for name, spec in received.schema.items() if spec.kind == "buffer"} if s.buffers == "own" else ()
        members = {name: layer for name, layer in layers.members.items() if name not in kept}
        return client_mixtures(received, rows, members, received.facts.get("stale", ()))

    def rows(self, received: "Received", names: Sequence[str]) -> list[Row]:
        """Return the attention of one layer, a row of N weights for each of N clients.

        Args:
            received: The updates.
            names: The layer's parameters.
        """
        import torch

        s, count = self.settings, len(received.updates)
        blocks = received.blocks(names, changes=s.attention == "update_cosine")
        gram = gram_matrix(blocks, count, centred=s.attention in CENTRED)
        entries = sum(received.files[0].entries[name].numel for name in names)

        def coefficients(given: dict[str, float]) -> "Tensor | None":
            values = [given.get(update.client, 1.0) for update in received.updates]
            return torch.tensor(values, dtype=torch.float64) if given else None

        temperature = s.temperature or TEMPERATURES.get(s.attention, 1.0)
        query, key = coefficients(s.query), coefficients(s.key)
        weights = attention(gram, s.attention, temperature, entries, s.self_weight, query, key)
        if s.top_k is not None and s.top_k < count:
            return list(sparse_rows(weights, s.top_k, s.self_weight))
        return [array("d", row) for row in weights.tolist()]

    def pools_variances(self, model: str, bn_policy: str) -> bool:
        """Return whether variances are pooled: of clients' models as ``buffers`` says."""
        return super().pools_variances(model, bn_policy) if model == GLOBAL else self.settings.buffers == "pooled"


def make(settings: Settings) -> Aggregator:
    """Return the aggregator."""
    return LayerAttention(settings)
