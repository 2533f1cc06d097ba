"""The whole partition of a data set: each client's images, their use, which are labelled, and their stream chunks."""

from dataclasses import dataclass, replace
from enum import IntEnum

import numpy as np

from models.errors import UserError
from tasks.core.names import visible_name
from tasks.core.randomness import numpy_generator
from tasks.data.clients import Rows
from tasks.data.dataset import Dataset
from tasks.data.partition.assignment import Assignment
from tasks.data.partition.local_test import assign_in_proportion, local_splits
from tasks.data.partition.pools import choose_labelled, choose_labelled_per_client, stream_chunks
from tasks.data.partition.schemes import SchemeInput, assign
from tasks.data.partition.settings import PartitionSettings
from tasks.data.partition.strata import primary_labels


class HeldOut(IntEnum):
    """Values besides client numbers in the array of images that are held out before the scheme divides the rest."""

    NOT = -1
    AT_SERVER = -2


@dataclass
class Division:
    """The result of ``divide``.

    Attributes:
        rows: Each client's images.
        server: Rows of the labelled images at the server, int64, ascending.
        assignment: The scheme's result.
    """

    rows: dict[str, Rows]
    server: np.ndarray
    assignment: Assignment


def divide(dataset: Dataset, settings: PartitionSettings, seed: int) -> Division:
    """Partition a data set. Images are ordered by their sample ids, so the order of the rows changes nothing.

    Labelled images of the server, or balanced ones of the clients, are held out first; the scheme divides the rest
    of the train split (of all images with ``settings.images`` all); then the clients' local test sets and labelled
    images are chosen. Images without an annotation stay with their site under the scheme natural; under any other they
    are divided evenly.

    Raises:
        UserError: Streaming, and nothing is unlabelled; see ``schemes.assign`` and ``local_test.local_splits``.
    """
    order = np.argsort(dataset.sample_ids, kind="stable")
    annotated = dataset.annotated[order]
    targets, splits = dataset.targets[order], dataset.splits[order].astype("<U5")
    if settings.images == "all":
        splits[:] = "train"
    train = splits == "train"
    primary = primary_labels(targets, train & annotated, settings.primary)
    primary[~annotated] = targets.shape[1] + 1  # neither a label nor none
    if settings.share < 1:
        train &= _drawn(primary, train, settings.share, seed)
    held_out = _hold_out(primary, train & annotated, settings, seed)
    free = held_out == HeldOut.NOT
    by_scheme = np.flatnonzero(annotated | (settings.scheme == "natural"))  # which needs no labels
    some = order[by_scheme]
    images = SchemeInput(targets[by_scheme], dataset.sites[some], (train & free)[by_scheme], dataset.lazy_images(some))
    assignment = _among_all(assign(images, settings, seed), by_scheme, len(order))
    owner = np.where(held_out >= 0, held_out, assignment.owner)
    if len(some) < len(order):
        owner = _assign_rest(owner, train & ~annotated, len(assignment.names), seed)
    if settings.local.scheme == "local":
        groups = dataset.groups[order][train]
        names, local = assignment.names, settings.local
        divided = np.where(free & annotated, owner, -1)[train]
        splits[train] = local_splits(targets[train], groups, divided, names, local, seed)
    elif settings.local.scheme == "matched":
        owner = _assign_matched(owner, splits, assignment, settings, seed)
    labelled, chunk = _label(owner, splits, primary, annotated, held_out, assignment.names, settings, seed)
    assignment.warnings += _warnings(labelled & (splits == "train"), owner, assignment.names, settings)
    rows = {}
    for k, name in enumerate(assignment.names.tolist()):
        owned = np.flatnonzero(owner == k)
        owned = owned[np.argsort(order[owned])]
        pool = np.where(labelled[owned], "labelled", "unlabelled")
        rows[name] = Rows(order[owned].astype(np.int64), splits[owned], pool, chunk[owned])
    return Division(rows, np.sort(order[held_out == HeldOut.AT_SERVER]).astype(np.int64), assignment)


def _warnings(labelled: np.ndarray, owner: np.ndarray, names: np.ndarray, settings: PartitionSettings) -> list[str]:
    """Warn of clients without labelled training images, unless all of these are at the server."""
    without = np.setdiff1d(np.arange(len(names)), owner[labelled])
    if settings.labelled.where == "server" or not len(without):
        return []
    shown = ", ".join(map(visible_name, names[without[:8]].tolist())) + (", ..." if len(without) > 8 else "")
    return [
        f"{len(without)} of {len(names)} clients have no labelled training image, so they take part only in methods "
        f"that use unlabelled ones: {shown}"
    ]


def _drawn(primary: np.ndarray, train: np.ndarray, share: float, seed: int) -> np.ndarray:
    """Draw a share of the training images of each primary label, at least one of each, bool [n]."""
    rng, drawn = numpy_generator(seed, "partition/share"), np.zeros(len(primary), dtype=bool)
    for label in np.unique(primary[train]):
        rows = np.flatnonzero(train & (primary == label))
        drawn[rng.choice(rows, max(1, round(share * len(rows))), replace=False)] = True
    return drawn


def _hold_out(primary: np.ndarray, train: np.ndarray, settings: PartitionSettings, seed: int) -> np.ndarray:
    """Choose the images that the scheme does not divide, int64 [n]: a client's number, or a value of ``HeldOut``."""
    held_out = np.full(len(train), HeldOut.NOT, dtype=np.int64)
    labelled, rng = settings.labelled, numpy_generator(seed, "partition/labelled")
    if labelled.where == "server":
        chosen = choose_labelled(primary[train], labelled.per_class, rng)
        held_out[train] = np.where(chosen, HeldOut.AT_SERVER, HeldOut.NOT)
    elif labelled.balanced:
        assert settings.clients is not None
        held_out[train] = choose_labelled_per_client(primary[train], settings.clients, labelled.per_class, rng)
    return held_out


def _assign_rest(owner: np.ndarray, rest: np.ndarray, clients: int, seed: int) -> np.ndarray:
    """Assign the images without an annotation, which no scheme can divide by labels, evenly and at random."""
    owner, rows = owner.copy(), np.flatnonzero(rest)
    owner[rows] = numpy_generator(seed, "partition/unlabelled").permutation(np.arange(len(rows)) % clients)
    return owner


def _among_all(assignment: Assignment, rows: np.ndarray, count: int) -> Assignment:
    """Return the assignment of some rows as one of all ``count`` images; the others have no client, and stratum 0."""
    owner, strata = np.full(count, -1, dtype=np.int64), np.zeros(count, dtype=np.int64)
    owner[rows], strata[rows] = assignment.owner, assignment.strata
    return replace(assignment, owner=owner, strata=strata)


def _assign_matched(
    owner: np.ndarray, splits: np.ndarray, assignment: Assignment, settings: PartitionSettings, seed: int
) -> np.ndarray:
    """Assign the data set's val and test images to the clients too; return the owners, int64 [n]."""
    owner, assignable = owner.copy(), _assignable(assignment, settings)
    for split in ("val", "test"):
        rows = np.flatnonzero((splits == split) & assignable)
        rng = numpy_generator(seed, f"partition/matched/{split}")
        owner[rows] = assign_in_proportion(assignment.strata[rows], assignment.allocation, rng)
    clients = len(assignment.names)
    untested = clients - len(np.unique(owner[(splits == "test") & (owner >= 0)]))
    if untested:
        assignment.warnings.append(f"{untested} of {clients} clients got no test image (local.scheme matched)")
    return owner


def _assignable(assignment: Assignment, settings: PartitionSettings) -> np.ndarray:
    """Select the images that clients may get, bool [n]: all; for ``natural`` those of sites that have a client."""
    if settings.scheme != "natural":
        return np.ones(len(assignment.strata), dtype=bool)
    assignable: np.ndarray = np.isin(assignment.strata, assignment.strata[assignment.owner >= 0])
    return assignable


def _label(
    owner: np.ndarray,
    splits: np.ndarray,
    primary: np.ndarray,
    annotated: np.ndarray,
    held_out: np.ndarray,
    names: np.ndarray,
    settings: PartitionSettings,
    seed: int,
) -> tuple[np.ndarray, np.ndarray]:
    """Choose the clients' labelled images, bool [n], and the stream chunk of each unlabelled one, int64 [n]."""
    chunk = np.zeros(len(owner), dtype=np.int64)
    everything = settings.labelled.where == "all"
    if everything and annotated.all():
        if settings.labelled.streaming > 1:
            raise UserError(
                "streaming needs unlabelled images, and the data set has none",
                where="partition.labelled.streaming",
                found=settings.labelled.streaming,
                hint="set partition.labelled.where to clients or server, or ingest.unlabelled to keep",
            )
        return np.ones(len(owner), dtype=bool), chunk
    labelled = annotated.copy() if everything else (held_out >= 0) | (splits != "train")
    for k, name in enumerate(names.tolist()):
        rng = numpy_generator(seed, "partition/labelled", client=name)
        rows = np.flatnonzero((owner == k) & (splits == "train"))
        if settings.labelled.where == "clients" and not settings.labelled.balanced:
            known = rows[annotated[rows]]
            labelled[known] = choose_labelled(primary[known], settings.labelled.per_class, rng)
        unlabelled = rows[~labelled[rows]]
        chunk[unlabelled] = stream_chunks(len(unlabelled), settings.labelled.streaming, rng)
    return labelled, chunk
