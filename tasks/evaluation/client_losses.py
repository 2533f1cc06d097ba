"""A model's loss at clients, on their own images: what a server asks that chooses clients by loss (FedCor)."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tasks.core.records import ModelRef
from tasks.data.run_data import load_run_data

if TYPE_CHECKING:
    from tasks.core.context import RunContext


def evaluate_client_losses(
    context: "RunContext", clients: Sequence[str], model: ModelRef, split: str
) -> dict[str, tuple[float, int]]:
    """The loss of one model at each client.

    Args:
        context: The run.
        clients: Who scores it.
        model: Its weights.
        split: ``val`` or ``train``: which of its own labelled images a client uses.

    Returns:
        Client id -> (mean binary cross entropy per label, number of images); the loss is NaN without images.
    """
    from tasks.client.feature_skew import client_images
    from tasks.core.network import binary_cross_entropy, build_network, predict_logits

    dataset, held = load_run_data(context)
    network = build_network(context, context.open_store(), model)
    losses = {}
    for client in sorted(clients):
        rows = held.rows(client, split, "labelled")
        images = client_images(dataset, held, client, rows)
        losses[client] = (
            binary_cross_entropy(predict_logits(context, network, images), dataset.targets[rows]),
            len(rows),
        )
    return losses
