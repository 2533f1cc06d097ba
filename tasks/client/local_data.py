"""A participant's training images: labelled, unlabelled, or the server's labelled ones."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from models.errors import UserError
from tasks.client.feature_skew import client_images
from tasks.client.hidden_labels import HiddenLabels, nothing_hidden
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
        hidden: Counts right pseudo-labels of the unlabelled images.
        stream: Number of stream chunks, and the rounds for which each is in use; ``None``: no streaming.
        pool: Unlabelled images of all chunks; ``None``: ``unlabelled`` has them all.
        vectors: The frozen encoder's vectors of the labelled images [M, D], where training takes those.
    """

    images: LazyImages
    targets: np.ndarray
    unlabelled: LazyImages
    chunks: np.ndarray
    hidden: HiddenLabels
    stream: tuple[int, int] | None = None
    pool: int | None = None
    vectors: "Tensor | None" = None

    def count(self, data: str) -> int:
        """Return the number of images of the kind ``labelled``, ``unlabelled`` or ``both``, of all stream chunks."""
        labelled, unlabelled = len(self.images), len(self.unlabelled) if self.pool is None else self.pool
        return {"labelled": labelled, "unlabelled": unlabelled, "both": labelled + unlabelled}[data]

    def in_round(self, number: int) -> "LocalData":
        """Return the images that are in use in a round: of the unlabelled ones one stream chunk."""
        if self.stream is None or not len(self.unlabelled):
            return self
        rows = np.flatnonzero(self.chunks == chunk_in_use(self.chunks, number, *self.stream))
        return replace(
            self,
            unlabelled=self.unlabelled.subset(rows),
            chunks=self.chunks[rows],
            hidden=self.hidden.subset(rows),
            pool=len(self.unlabelled),
        )

    def revealed(self) -> "LocalData":
        """Return the images with the true labels of the unlabelled ones, for fully supervised references.

        The labelled images come first. Photographs whose labels nobody knows are left out.
        """
        rows, targets = self.hidden.reveal()
        none = np.zeros(0, dtype=np.int64)
        return replace(
            self,
            images=self.images.joined(self.unlabelled.subset(rows)),
            targets=np.concatenate([self.targets, targets]),
            unlabelled=self.unlabelled.subset(none),
            chunks=none,
            hidden=self.hidden.subset(none),
            pool=None,
        )


def chunk_in_use(chunks: np.ndarray, number: int, count: int, rounds: int) -> int:
    """Return the stream chunk that is in use in a round; after the last one comes the first again.

    A pool smaller than the number of chunks repeats those that have images.

    Args:
        chunks: Chunk of each unlabelled image, int64 [U], U at least 1.
        number: 1-based round.
        count: Number of chunks.
        rounds: Rounds for which a chunk is in use.
    """
    filled = np.unique(chunks)
    return int(filled[(number - 1) // rounds % count % len(filled)])


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
            HiddenLabels(dataset.targets[unlabelled], dataset.annotated[unlabelled]),
            clients.stream,
        )
    if client != SERVER:
        raise UserError("no such client in the partition", where=context.clients, expected=clients.ids, found=client)
    none = np.zeros(0, np.int64)
    return LocalData(
        dataset.lazy_images(clients.server),
        dataset.targets[clients.server],
        dataset.lazy_images(none),
        none,
        nothing_hidden(len(dataset.classes)),
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
