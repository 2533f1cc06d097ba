"""From attention between clients to the models that come out: one for each client, and the mean."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from tasks.core.round_state import GLOBAL, client_model
from tasks.server.aggregators import Mixing, SparseRow
from tasks.server.aggregators.mixing import Row

if TYPE_CHECKING:
    from tasks.server.aggregators.received import Received


def client_mixtures(
    received: "Received", rows: Mapping[str, Sequence[Row]], members: Mapping[str, str], stale: Sequence[str] = ()
) -> Mixing:
    """Return the mixing of a model for each client and of ``global``, the mean with the prior weights.

    Tensors without a layer, such as counters, are each client's own.

    Args:
        received: The N updates.
        rows: Layer -> N rows of N weights; row i makes client i's layer.
        members: Tensor -> its layer.
        stale: Clients whose update is of an earlier round: they get no new model.
    """
    clients, absent = [update.client for update in received.updates], set(stale)
    fresh = [index for index, client in enumerate(clients) if client not in absent]
    own = [SparseRow(len(clients), [index], [1.0]) for index in fresh]
    layers = {layer: [received.weights, *(matrix[index] for index in fresh)] for layer, matrix in rows.items()}
    outputs = (GLOBAL, *(client_model(clients[index]) for index in fresh))
    return Mixing(outputs, [received.weights, *own], layers, members)
