"""Partition: which client holds which training images.

The three schemes are pure functions on arrays. Each returns the owner of every image, so a partition is disjoint and
complete by construction; nothing depends on the order of a dictionary.
"""

import os
from collections import Counter
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from models.base_settings import Section
from models.errors import UserError
from tasks.data.clients import HEATMAP, SUMMARY, TABLE, clients_digest, write_clients_table
from tasks.data.dataset import Dataset, load_dataset, replacing, write_json
from tasks.data.heterogeneity import effective_clients, label_client_heatmap, label_counts, mean_js_distance
from tasks.randomness import numpy_generator

_REDRAWS = 20


class PartitionSettings(Section):
    """How training images are divided among clients."""

    scheme: Literal["iid", "natural", "dirichlet"] = Field(
        "natural",
        description="natural: one client per site; iid: at random; dirichlet: skewed by label sets.",
    )
    clients: int | None = Field(
        None, ge=1, description="Number of clients for iid and dirichlet; natural takes it from the sites."
    )
    alpha: float = Field(
        0.5, ge=1e-3, le=1e6, description="Dirichlet concentration, scheme dirichlet: small = skewed, large = alike."
    )
    min_size: int = Field(16, ge=1, description="Fewest training images of a client.")

    @model_validator(mode="after")
    def _clients_fit_the_scheme(self) -> Self:
        if self.scheme == "natural" and self.clients is not None:
            raise ValueError("clients: the scheme natural makes one client per site; leave clients at null")
        if self.scheme != "natural" and self.clients is None:
            raise ValueError(f"clients: the scheme {self.scheme} needs a number of clients")
        return self


def client_names(clients: int) -> np.ndarray:
    """``client-000``, ``client-001``, ...: names whose order is that of their numbers."""
    width = max(3, len(str(clients - 1)))
    return np.array([f"client-{number:0{width}d}" for number in range(clients)])


def iid(n: int, clients: int, rng: np.random.Generator) -> np.ndarray:
    """Owners of n images at random, str [n]; client sizes differ by one at most."""
    return client_names(clients)[rng.permutation(np.arange(n) % clients)]


def natural(sites: np.ndarray) -> np.ndarray:
    """Owners by site, str [n]: each site is a client under its own name."""
    return np.array(sites, dtype=str)


def dirichlet_label_sets(
    targets: np.ndarray, clients: int, alpha: float, min_size: int, rng: np.random.Generator
) -> np.ndarray:
    """Owners skewed by label sets, str [n].

    Images are grouped by their label set (``label_set_groups``). Each group is divided among the clients by shares
    from a symmetric Dirichlet distribution. While a client has fewer than ``min_size`` images all shares are drawn
    again, at most 20 times; then the largest client gives to the smallest, out of the group it has most of.

    Args:
        targets: [n, C], non-zero where image i has label c.
        clients: K.
        alpha: Concentration; small makes clients differ.
        min_size: Fewest images of a client; K * min_size <= n.
        rng: Source of all draws.
    """
    n = len(targets)
    assert clients * min_size <= n, (clients, min_size, n)
    groups = label_set_groups(targets, clients)
    members = [np.flatnonzero(groups == group) for group in np.unique(groups)]
    owner = np.zeros(n, dtype=np.int64)
    for _ in range(_REDRAWS):
        for rows in members:
            shares = rng.dirichlet(np.full(clients, alpha))
            # Cut points of the shuffled group; rounding the sums, not the shares, loses no image.
            cuts = np.rint(np.cumsum(shares)[:-1] * len(rows)).astype(np.int64)
            for client, part in enumerate(np.split(rng.permutation(rows), cuts)):
                owner[part] = client
        if np.bincount(owner, minlength=clients).min() >= min_size:
            break
    else:
        _fill_up(owner, groups, clients, min_size)
    return client_names(clients)[owner]


def label_set_groups(targets: np.ndarray, smallest: int) -> np.ndarray:
    """Group number of each image, int64 [n]: its label set, or for rare sets their rarest label.

    A label set that fewer than ``smallest`` images have could not be spread over as many clients, so it joins the
    group of its label with the fewest images (ties: the first column). Images without a label are a group.
    """
    present = np.asarray(targets) != 0
    frequency = present.sum(axis=0)
    sets = [tuple(np.flatnonzero(row).tolist()) for row in present]
    counts = Counter(sets)
    keys = [
        labels if counts[labels] >= smallest or not labels else (min(labels, key=lambda c: (frequency[c], c)),)
        for labels in sets
    ]
    number = {key: index for index, key in enumerate(sorted(set(keys)))}
    return np.array([number[key] for key in keys], dtype=np.int64)


def partition(dataset_dir: Path, settings: PartitionSettings, out: Path, seed: int) -> dict[str, Any]:
    """Divide the train split of a data set among clients and write the result to ``out`` in one step.

    Returns:
        What ``clients.json`` holds.

    Raises:
        UserError: The data set is missing or damaged, or there are too few images for ``min_size``.
    """
    dataset = load_dataset(dataset_dir)
    train = dataset.indices("train")
    owners = _owners(dataset, train, settings, seed)
    ids = sorted(set(owners.tolist()))
    indices = {client: train[owners == client] for client in ids}
    sizes = np.array([len(indices[client]) for client in ids])
    small = [f"{client}: {size}" for client, size in zip(ids, sizes, strict=True) if size < settings.min_size]
    if small:
        raise UserError(
            "clients have too few training images",
            where="partition.min_size",
            expected=f"at least {settings.min_size} for each client",
            found=", ".join(small),
            hint="lower partition.min_size, or use the scheme iid or dirichlet",
        )
    targets = dataset.targets[train]
    counts = label_counts(targets, owners, ids)
    summary = _summary(dataset, settings, indices, counts, targets, owners) | {"seed": seed}
    with replacing(Path(os.path.abspath(out)), SUMMARY) as folder:  # noqa: PTH100  keeps links
        write_clients_table(dataset, indices, folder / TABLE)
        label_client_heatmap(counts, sizes, ids, dataset.classes, folder / HEATMAP)
        write_json(summary, folder / SUMMARY)
    return summary


def _owners(dataset: Dataset, train: np.ndarray, settings: PartitionSettings, seed: int) -> np.ndarray:
    if settings.scheme == "natural":
        return natural(dataset.sites[train])
    assert settings.clients is not None
    if settings.clients * settings.min_size > len(train):
        raise UserError(
            "there are too few training images for so many clients",
            where="partition.clients",
            expected=f"at most {len(train) // settings.min_size} clients of partition.min_size = {settings.min_size}",
            found=f"{settings.clients} clients, {len(train)} training images",
            hint="lower partition.clients or partition.min_size",
        )
    rng = numpy_generator(seed, f"partition/{settings.scheme}")
    if settings.scheme == "iid":
        return iid(len(train), settings.clients, rng)
    return dirichlet_label_sets(dataset.targets[train], settings.clients, settings.alpha, settings.min_size, rng)


def _summary(
    dataset: Dataset,
    settings: PartitionSettings,
    indices: dict[str, np.ndarray],
    counts: np.ndarray,
    targets: np.ndarray,
    owners: np.ndarray,
) -> dict[str, Any]:
    ids = sorted(indices)
    # Images without a label are a category of their own in the distance.
    negatives = label_counts((targets.sum(axis=1, keepdims=True) == 0).astype(np.int64), owners, ids)
    absent = sorted(set(dataset.sites.tolist()) - set(ids)) if settings.scheme == "natural" else []
    return {
        "digest": clients_digest(dataset.digest, indices),
        "dataset_digest": dataset.digest,
        "scheme": settings.scheme,
        "clients": {
            client: {
                "images": len(indices[client]),
                "negatives": int(negatives[row, 0]),
                "labels": dict(zip(dataset.classes, counts[row].tolist(), strict=True)),
            }
            for row, client in enumerate(ids)
        },
        "mean_js_distance": mean_js_distance(np.hstack([counts, negatives])),
        "effective_clients": effective_clients(np.array([len(indices[client]) for client in ids])),
        "sites_without_training_images": absent,
        "settings": settings.model_dump(mode="json"),
    }


def _fill_up(owner: np.ndarray, groups: np.ndarray, clients: int, min_size: int) -> None:
    """Move images, in place, until every client has ``min_size``; no draw, so the result is a function of its input."""
    sizes = np.bincount(owner, minlength=clients)
    while sizes.min() < min_size:
        taker, giver = int(sizes.argmin()), int(sizes.argmax())
        held = np.flatnonzero(owner == giver)
        most = np.bincount(groups[held]).argmax()
        owner[held[groups[held] == most][-1]] = taker
        sizes[taker] += 1
        sizes[giver] -= 1
