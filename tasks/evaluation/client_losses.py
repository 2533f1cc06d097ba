"""A model's loss at the clients, on their own images: input of client selection by loss (FedCor)."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tasks.core.records import ModelRef
from tasks.data.run_data import load_run_data

if TYPE_CHECKING:
    from tasks.core.context import RunContext


def evaluate_client_losses(
    context: "RunContext", clients: Sequence[str], model: ModelRef, split: str
) -> dict[str, tuple[float, int]]:
    """Evaluate the loss of one model at each client.

    Args:
        context: The run.
        clients: The clients that evaluate it.
        model: Its weights.
        split: ``val`` or ``train``, of the labelled images of each client.

    Returns:
        Client id -> (mean loss of the kind of problem, number of images); the loss is NaN without images.
    """
    from tasks.client.feature_skew import client_images
    from tasks.core.network import build_network, predict_logits

    dataset, partition = load_run_data(context)
    network = build_network(context, context.open_store(), model)
    losses = {}
    for client in sorted(clients):
        rows = partition.rows(client, split, "labelled")
        images = client_images(dataset, partition, client, rows)
        logits = predict_logits(context, network, images)
        losses[client] = (context.problem.loss(logits, dataset.targets[rows]), len(rows))
    return losses
