"""A participant's training images: labelled, unlabelled, or the server's labelled ones."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from models.errors import UserError
from tasks.client.feature_skew import client_images
from tasks.data.dataset import LazyImages
from tasks.data.run_data import load_run_data

if TYPE_CHECKING:
    from torch import Tensor

    from tasks.core.context import RunContext

SERVER = "server"  # the participant that trains on the server's labelled images


@dataclass(frozen=True)
class LocalData:
    """Training images, read on access.

    Attributes:
        images: Labelled images uint8 [M, 3, S, S].
        targets: Their labels uint8 [M, C].
        unlabelled: Images without labels uint8 [U, 3, S, S].
        chunks: Stream chunk of each unlabelled image, int64 [U], from 0.
        vectors: The frozen encoder's vectors of the labelled images [M, D], where training takes those.
    """

    images: LazyImages
    targets: np.ndarray
    unlabelled: LazyImages
    chunks: np.ndarray
    vectors: "Tensor | None" = None

    def count(self, data: str) -> int:
        """Return the number of images of the kind ``labelled``, ``unlabelled`` or ``both``."""
        labelled, unlabelled = len(self.images), len(self.unlabelled)
        return {"labelled": labelled, "unlabelled": unlabelled, "both": labelled + unlabelled}[data]


def local_data(context: "RunContext", client: str) -> LocalData:
    """Return a client's training images, or those at the server for ``SERVER``.

    Raises:
        UserError: If the partition does not know the client.
    """
    dataset, clients = load_run_data(context)
    if client in clients.indices:
        labelled, unlabelled = clients.indices[client], clients.rows(client, "train", "unlabelled")
        own = clients.all_rows[client]
        chunks = own.chunk[(own.split == "train") & (own.pool == "unlabelled")]
        return LocalData(
            client_images(dataset, clients, client, labelled),
            dataset.targets[labelled],
            client_images(dataset, clients, client, unlabelled),
            chunks,
        )
    if client != SERVER:
        raise UserError("no such client in the partition", where=context.clients, expected=clients.ids, found=client)
    none = np.zeros(0, np.int64)
    return LocalData(
        dataset.lazy_images(clients.server), dataset.targets[clients.server], dataset.lazy_images(none), none
    )


def client_data(context: "RunContext", client: str) -> tuple[LazyImages, np.ndarray]:
    """Return a client's labelled training images uint8 [M_i, 3, S, S], read on access, and labels uint8 [M_i, C].

    Raises:
        UserError: If the partition does not know the client, or put all labels at the server.
    """
    data = local_data(context, client)
    if client != SERVER:
        load_run_data(context)[1].require_labels()
    return data.images, data.targets
