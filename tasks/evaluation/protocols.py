"""The evaluation protocols: which clients are evaluated on which images (``evaluation.protocols``).

``global``: the pooled test set, by the global model, or by each client's own. ``local``: a client's own test images.
``matched``: pooled test images drawn like the labels of the client's training images. ``new_clients``: the images of
clients that never take part, by the global model.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from tasks.core.randomness import numpy_generator
from tasks.core.round_state import GLOBAL
from tasks.evaluation.matched import matched_rows
from tasks.evaluation.new_clients import held_out

if TYPE_CHECKING:
    from tasks.core.context import RunContext
    from tasks.core.round_state import RoundState
    from tasks.data.clients import Clients
    from tasks.data.dataset import Dataset


def new_clients(context: "RunContext", clients: "Clients") -> list[str]:
    """Return the clients of the run that never take part."""
    return held_out(clients.ids, context.evaluation.new_clients, context.seed)


def client_rows(
    context: "RunContext", dataset: "Dataset", clients: "Clients", client: str, held: list[str]
) -> dict[str, np.ndarray]:
    """Return the images that a client's model is evaluated on, by protocol, int64 rows; no entry without images.

    A client that never takes part has its local test images or, if the partition makes none, its training images, on
    which nothing was trained.

    Args:
        context: The run.
        dataset: The images.
        clients: The clients.
        client: The client.
        held: The clients that never take part.
    """
    chosen, found = context.evaluation.protocols, {}
    local = clients.rows(client, "test")
    if client in held:
        found["new_clients"] = local if len(local) else clients.rows(client, "train", "labelled")
    else:
        if "local" in chosen:
            found["local"] = local
        if "matched" in chosen:
            found["matched"] = _matched(context, dataset, clients, client)
    return {protocol: rows for protocol, rows in found.items() if len(rows)}


def _matched(context: "RunContext", dataset: "Dataset", clients: "Clients", client: str) -> np.ndarray:
    """Draw a client's matched test images, the same ones in every round."""
    tests = dataset.indices("test")
    trained, tested = dataset.targets[clients.indices[client]], dataset.targets[tests]
    rng = numpy_generator(context.seed, "matched test images", client=client)
    return np.asarray(tests[matched_rows(trained, tested, context.kind, rng)])


def has_shared_model(state: "RoundState") -> bool:
    """Return whether clients without a model of their own have one."""
    return state.evaluated_model is not None or GLOBAL in state.models


def clients_to_evaluate(
    context: "RunContext", state: "RoundState", dataset: "Dataset", clients: "Clients"
) -> list[str]:
    """Return the clients that a protocol concerns; those with the same model are beside each other.

    Where there is no shared model, a client that has not taken part yet has none, and is left out.
    """
    held, protocols = new_clients(context, clients), context.evaluation.protocols
    personalised = set(state.personalised)
    own = personalised if "global" in protocols else set()
    tested, shared = bool(len(dataset.indices("test"))), has_shared_model(state)
    concerned = [
        client
        for client in clients.ids
        if (shared or client in personalised)
        and (
            client in own
            or client in held
            or ("local" in protocols and len(clients.rows(client, "test")))
            or ("matched" in protocols and tested and len(clients.indices[client]))
        )
    ]
    return sorted(concerned, key=lambda client: (state.own.get(client, ""), client))


def chunks(clients: Mapping[str, int] | list[str], workers: int, smallest: int) -> list[list[str]]:
    """Divide clients into chunks of at least ``smallest``, about four for each worker."""
    names = list(clients)
    size = max(smallest, -(-len(names) // (4 * workers)), 1)
    return [names[start : start + size] for start in range(0, len(names), size)]
