"""The whole partition of a data set: who holds which image, for what, labelled or not, and from when."""

from dataclasses import dataclass

import numpy as np

from tasks.core.randomness import numpy_generator
from tasks.data.clients import Rows
from tasks.data.dataset import Dataset
from tasks.data.partition.local_test import local_splits, matched
from tasks.data.partition.pools import arrivals, choose, choose_for_clients
from tasks.data.partition.schemes import Images, Owners, assign
from tasks.data.partition.settings import LabelledSettings, PartitionSettings
from tasks.data.partition.strata import primary_labels

_NOBODY, _SERVER = -1, -2  # besides the numbers of clients


@dataclass
class Division:
    """What ``divide`` found.

    Attributes:
        rows: What clients hold, by client and row.
        server: Rows of the labelled images at the server, int64, ascending.
        owners: What the scheme did.
    """

    rows: dict[str, Rows]
    server: np.ndarray
    owners: Owners


def divide(dataset: Dataset, settings: PartitionSettings, seed: int) -> Division:
    """Partition a data set. The order of its rows decides nothing: images are taken by their sample ids.

    Labelled images of the server, or balanced ones of the clients, are set apart first; the scheme divides the rest
    of the train split; then clients' own test images and their labelled ones are chosen.

    Raises:
        UserError: See ``schemes.assign`` and ``local.local_splits``.
    """
    order = np.argsort(dataset.sample_ids, kind="stable")
    targets, splits = dataset.targets[order], dataset.splits[order].astype("<U5")
    train = splits == "train"
    primary = primary_labels(targets, train, settings.primary)
    apart = _set_apart(primary, train, settings, seed)
    at_server = apart == _SERVER
    images = Images(targets, dataset.sites[order], train & (apart == _NOBODY), dataset.lazy_images(order))
    owners = assign(images, settings, seed)
    owner = np.where(apart >= 0, apart, owners.owner)
    if settings.local.scheme == "local":
        free = np.where(apart == _NOBODY, owner, -1)[train]
        groups = dataset.groups[order][train]
        splits[train] = local_splits(targets[train], groups, free, owners.names, settings.local, seed)
    elif settings.local.scheme == "matched":
        for split in ("val", "test"):
            here = np.flatnonzero((splits == split) & _matchable(owners, settings))
            rng = numpy_generator(seed, f"partition/matched/{split}")
            owner[here] = matched(owners.categories[here], owners.plan, rng)
        untested = len(owners.names) - len(np.unique(owner[(splits == "test") & (owner >= 0)]))
        if untested:
            owners.warnings.append(
                f"{untested} of {len(owners.names)} clients got no test image (local.scheme matched)"
            )
    labelled = (apart >= 0) | (splits != "train") if settings.labelled.where != "all" else np.ones(len(owner), bool)
    step = np.zeros(len(owner), dtype=np.int64)
    rows = {}
    for k, name in enumerate(owners.names.tolist()):
        held = np.flatnonzero(owner == k)
        if settings.labelled.where != "all":
            _pool(held[splits[held] == "train"], primary, labelled, step, name, settings.labelled, seed)
        held = held[np.argsort(order[held])]
        pool = np.where(labelled[held], "labelled", "unlabelled")
        rows[name] = Rows(order[held].astype(np.int64), splits[held], pool, step[held])
    return Division(rows, np.sort(order[at_server]).astype(np.int64), owners)


def _set_apart(primary: np.ndarray, train: np.ndarray, settings: PartitionSettings, seed: int) -> np.ndarray:
    """Who gets an image before the scheme divides: a client's number, the server, or nobody; int64 [n]."""
    apart = np.full(len(train), _NOBODY, dtype=np.int64)
    labelled, rng = settings.labelled, numpy_generator(seed, "partition/labelled")
    if labelled.where == "server":
        apart[train] = np.where(choose(primary[train], labelled.per_class, rng), _SERVER, _NOBODY)
    elif labelled.balanced:
        assert settings.clients is not None
        apart[train] = choose_for_clients(primary[train], settings.clients, labelled.per_class, rng)
    return apart


def _matchable(owners: Owners, settings: PartitionSettings) -> np.ndarray:
    """Images of a category that can be dealt, bool [n]: all, but for ``natural`` only those of a client's own site."""
    if settings.scheme != "natural":
        return np.ones(len(owners.categories), dtype=bool)
    matchable: np.ndarray = np.isin(owners.categories, owners.categories[owners.owner >= 0])
    return matchable


def _pool(
    rows: np.ndarray,
    primary: np.ndarray,
    labelled: np.ndarray,
    step: np.ndarray,
    client: str,
    settings: LabelledSettings,
    seed: int,
) -> None:
    """Choose a client's labelled training images and when the others arrive; in place."""
    rng = numpy_generator(seed, "partition/labelled", client=client)
    if settings.where == "clients" and not settings.balanced:
        labelled[rows] = choose(primary[rows], settings.per_class, rng)
    waiting = rows[~labelled[rows]]
    step[waiting] = arrivals(len(waiting), settings.streaming, rng)
