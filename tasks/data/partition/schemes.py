"""A scheme by name: the strata of all images, and the owners of the training images."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from models.errors import UserError
from tasks.core.names import visible_name
from tasks.core.randomness import derive_seed, numpy_generator
from tasks.data.partition import allocations, strata
from tasks.data.partition.assignment import (
    Assignment,
    RepairCounts,
    assign_images,
    count_allocation,
    count_reassigned,
    draw_until_min_size,
    reassign,
    repair_min_size,
)
from tasks.data.partition.iterative import iterative
from tasks.data.partition.settings import PartitionSettings

if TYPE_CHECKING:
    from tasks.data.dataset import LazyImages

_LABEL_WISE = ("dirichlet", "dirichlet_label", "cluster", "semantic")
_NOTABLE_SHARE = 0.05  # of images that were reassigned; more is a warning


@dataclass
class SchemeInput:
    """What a scheme divides: n images in the order of their sample ids, so the order of the rows changes nothing.

    Attributes:
        targets: uint8 [n, C].
        sites: str [n].
        train: bool [n], the images to divide; the others only get a stratum.
        pixels: Their pixels, uint8 [n, 3, S, S], read when they are indexed.
    """

    targets: np.ndarray
    sites: np.ndarray
    train: np.ndarray
    pixels: "LazyImages | np.ndarray"


def client_names(clients: int) -> np.ndarray:
    """Return ``client-000``, ``client-001``, ...: names that sort in the order of their numbers."""
    width = max(3, len(str(clients - 1)))
    return np.array([f"client-{number:0{width}d}" for number in range(clients)])


def assign(images: SchemeInput, settings: PartitionSettings, seed: int) -> Assignment:
    """Assign the training images to clients by the scheme of ``settings``.

    Raises:
        UserError: There are too few images, sites are too small, or a number of the scheme does not fit the data.
    """
    if settings.scheme == "natural":
        return _natural(images, settings)
    clients, n = settings.clients, int(images.train.sum())
    assert clients is not None
    if clients * settings.min_size > n:
        raise UserError(
            "too few training images for so many clients",
            where="partition.clients",
            expected=f"at most {n // settings.min_size} clients of partition.min_size = {settings.min_size}",
            found=f"{clients} clients, {n} training images",
            hint="lower partition.clients or partition.min_size",
        )
    stratum_of = _strata(images, settings, seed)
    train_strata = stratum_of[images.train]
    rng = numpy_generator(seed, f"partition/{settings.scheme}")
    assignment = Assignment(client_names(clients), np.full(len(stratum_of), -1, dtype=np.int64), stratum_of)
    repair = assignment.repair
    if settings.scheme == "iterative":
        owner = _iterative(images, settings, train_strata, rng, repair)
    else:
        totals = np.bincount(train_strata, minlength=int(stratum_of.max()) + 1)
        sample = _sampler(totals, settings, rng, repair)
        allocation = draw_until_min_size(sample, settings.min_size, settings.resamples, repair)
        owner = assign_images(train_strata, allocation, rng)
    assignment.owner[images.train] = owner
    assignment.warnings += _warnings(settings, clients, repair.reassigned, n)
    return assignment


def _warnings(settings: PartitionSettings, clients: int, reassigned: int, n: int) -> list[str]:
    """Warn where the partition differs from what was asked for."""
    warnings = []
    if settings.scheme in _LABEL_WISE and settings.alpha * clients < 0.5:
        warnings.append(
            f"partition.alpha {settings.alpha:g} is small for {clients} clients: the scheme {settings.scheme} leaves "
            "most of them almost empty; dirichlet_client keeps sizes equal"
        )
    if reassigned > _NOTABLE_SHARE * n:
        warnings.append(
            f"to reach partition.min_size, {reassigned} of {n} images were reassigned to other clients than the "
            f"scheme {settings.scheme} sampled, so clients are more alike than requested"
        )
    return warnings


def _natural(images: SchemeInput, settings: PartitionSettings) -> Assignment:
    """Make one client per site, named after it."""
    sites, counts = np.unique(images.sites[images.train], return_counts=True)
    small = {str(site): int(n) for site, n in zip(sites, counts, strict=True) if n < settings.min_size}
    names = sites[counts >= settings.min_size]
    if not len(names) or (small and settings.natural.small == "refuse"):
        shown = [f"{visible_name(site)}: {size}" for site, size in small.items()] or ["no training image"]
        raise UserError(
            "clients have too few training images",
            where="partition.min_size",
            expected=f"at least {settings.min_size} for each client",
            found=", ".join(shown[:20]) + (f" and {len(shown) - 20} more" if len(shown) > 20 else ""),
            hint="lower partition.min_size, set partition.natural.small to drop, or use another partition.scheme",
        )
    client = np.searchsorted(names, images.sites).clip(max=len(names) - 1)
    owner = np.where((names[client] == images.sites) & images.train, client, -1)
    return Assignment(names, owner, strata.numbered(images.sites), dropped=small)


def _strata(images: SchemeInput, settings: PartitionSettings, seed: int) -> np.ndarray:
    """Return the stratum of each image, int64 [n], numbered from 0; some strata may have no training image."""
    # "categories" is part of every seed of k-means: never changed
    start = derive_seed(seed, f"partition/{settings.scheme}/categories")
    assert settings.clients is not None
    match settings.scheme:
        case "quantity":
            return np.zeros(len(images.train), dtype=np.int64)
        case "iid" if not settings.iid.stratified:
            return np.zeros(len(images.train), dtype=np.int64)
        case "dirichlet" | "iterative":
            smallest = settings.label_sets.smallest or settings.clients
            return strata.label_sets(images.targets, images.train, smallest, settings.label_sets)
        case "cluster":
            return strata.label_clusters(images.targets, images.train, settings.cluster, start)
        case "semantic":
            return strata.image_clusters(images.pixels, images.train, settings.semantic, start)
    return strata.primary_labels(images.targets, images.train, settings.primary)


def _sampler(
    totals: np.ndarray, settings: PartitionSettings, rng: np.random.Generator, repair: RepairCounts
) -> Callable[[], np.ndarray]:
    """Return a function that samples the scheme's allocation [G, K]."""
    clients, alpha, n = settings.clients, settings.alpha, int(totals.sum())
    assert clients is not None
    match settings.scheme:
        case "iid" if settings.iid.sizes is not None:
            return partial(allocations.by_sizes, totals, settings.iid.sizes)
        case "iid":
            return partial(allocations.round_robin, totals, clients, rng)
        case "quantity":
            return lambda: allocations.sizes_by_quantity(n, clients, settings.quantity, rng)[None]
        case "shards":
            _require(clients * settings.shards.per_client <= n, "shards.per_client", n // clients, "images per client")
            return partial(allocations.by_shards, totals, clients, settings.shards.per_client, rng)
        case "classes_per_client":
            present = int((totals > 0).sum())
            classes = settings.classes_per_client.classes
            _require(classes <= present, "classes_per_client.classes", present, "primary labels")
            return partial(allocations.by_classes, totals, clients, settings.classes_per_client, rng)
        case "dirichlet_client" | "mixed" | "label_type":
            return partial(_client_wise, totals, settings, rng, repair)
    balance = settings.scheme == "dirichlet_label" and settings.dirichlet_label.balance
    return partial(allocations.by_label_balanced if balance else allocations.by_label, totals, clients, alpha, rng)


def _client_wise(
    totals: np.ndarray, settings: PartitionSettings, rng: np.random.Generator, repair: RepairCounts
) -> np.ndarray:
    """Sample the sizes first, then each client's mixture."""
    clients, n = settings.clients, int(totals.sum())
    assert clients is not None
    if settings.scheme == "mixed":
        sample = partial(allocations.sizes_by_quantity, n, clients, settings.quantity, rng)
        sizes = draw_until_min_size(lambda: sample()[None], settings.min_size, settings.resamples, repair)[0]
    else:
        sizes = allocations.round_robin(np.array([n]), clients, rng)[0]
    shares, present = totals / n, int((totals > 0).sum())
    if settings.scheme != "label_type":
        base = shares * (present if settings.dirichlet_client.concentration == "per_label" else 1)
        return allocations.by_client(totals, sizes, allocations.sample_shares(rng, settings.alpha, base, clients), rng)
    types = settings.label_type.types
    if settings.label_type.mixture == "dominant":
        mixtures = allocations.dominant_mixtures(totals, types)
    else:
        mixtures = allocations.sample_shares(rng, settings.alpha, shares * present, types)
    return allocations.by_client(totals, sizes, mixtures[np.arange(clients) % types], rng)


def _iterative(
    images: SchemeInput,
    settings: PartitionSettings,
    stratum_of: np.ndarray,
    rng: np.random.Generator,
    repair: RepairCounts,
) -> np.ndarray:
    """Assign owners image by image; the result is never sampled again but repaired at once."""
    targets, clients = images.targets[images.train], settings.clients
    assert clients is not None
    shares = allocations.sample_shares(rng, settings.alpha, np.ones(clients), targets.shape[1])
    owner = iterative(targets, shares, np.full(clients, len(targets) / clients), rng)
    before = count_allocation(stratum_of, owner, (int(stratum_of.max()) + 1, clients))
    after = repair_min_size(before, settings.min_size)
    repair.reassigned = count_reassigned(before, after)
    return reassign(stratum_of, owner, after)


def _require(fits: bool, key: str, most: int, what: str) -> None:
    if not fits:
        raise UserError(f"partition.{key} is too large", where=f"partition.{key}", expected=f"at most {most} ({what})")
