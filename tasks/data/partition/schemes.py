"""A scheme by name: categories of all images, owners of the training images."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from models.errors import UserError
from tasks.core.names import visible_name
from tasks.core.randomness import address, numpy_generator
from tasks.data.partition import allocations
from tasks.data.partition import strata as categories_
from tasks.data.partition.assignment import deal, fill_up, move, plan_of, settle
from tasks.data.partition.iterative import iterative
from tasks.data.partition.settings import PartitionSettings

if TYPE_CHECKING:
    from tasks.data.dataset import LazyImages

_LABEL_WISE = ("dirichlet", "dirichlet_label", "cluster", "semantic")
_NOTABLE = 0.05  # share of images moved by repair that is worth a word


@dataclass
class Images:
    """What schemes see: n images, in the order of their sample ids, so that the order of rows decides nothing.

    Attributes:
        targets: uint8 [n, C].
        sites: str [n].
        train: bool [n], the images that are to be divided; the others only get a category.
        images: Their pixels, read when they are indexed.
    """

    targets: np.ndarray
    sites: np.ndarray
    train: np.ndarray
    images: "LazyImages | np.ndarray"


@dataclass
class Owners:
    """Who holds what.

    Attributes:
        names: The K clients, sorted.
        owner: int64 [n], number of the client; -1 for what is not for training or was left out.
        categories: int64 [n], what the scheme divides by.
        counts: Plans drawn again (``redraws``) and images ``moved`` to reach ``min_size``.
        dropped: Sites that were left out, and their training images.
        warnings: What the user should know.
    """

    names: np.ndarray
    owner: np.ndarray
    categories: np.ndarray
    counts: dict[str, int] = field(default_factory=lambda: {"redraws": 0, "moved": 0})
    dropped: dict[str, int] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)

    @property
    def plan(self) -> np.ndarray:
        """Training images by category and client, int64 [G, K]."""
        held = self.owner >= 0
        shape = (int(self.categories.max()) + 1, len(self.names))
        return plan_of(self.categories[held], self.owner[held], shape)


def client_names(clients: int) -> np.ndarray:
    """``client-000``, ``client-001``, ...: names whose order is that of their numbers."""
    width = max(3, len(str(clients - 1)))
    return np.array([f"client-{number:0{width}d}" for number in range(clients)])


def assign(images: Images, settings: PartitionSettings, seed: int) -> Owners:
    """Owners of the training images by the scheme of ``settings``.

    Raises:
        UserError: There are too few images, sites are too small, or a scheme's own number does not fit the data.
    """
    if settings.scheme == "natural":
        return _natural(images, settings)
    clients, n = settings.clients, int(images.train.sum())
    assert clients is not None
    if clients * settings.min_size > n:
        raise UserError(
            "there are too few training images for so many clients",
            where="partition.clients",
            expected=f"at most {n // settings.min_size} clients of partition.min_size = {settings.min_size}",
            found=f"{clients} clients, {n} training images",
            hint="lower partition.clients or partition.min_size",
        )
    found = _categories(images, settings, seed)
    rng = numpy_generator(seed, f"partition/{settings.scheme}")
    owners = Owners(client_names(clients), np.full(len(found), -1, dtype=np.int64), found)
    if settings.scheme == "iterative":
        part = _iterative(images, settings, found[images.train], rng, owners.counts)
    else:
        totals = np.bincount(found[images.train], minlength=int(found.max()) + 1)
        plan = settle(_plan(totals, settings, rng, owners.counts), settings.min_size, settings.redraws, owners.counts)
        part = deal(found[images.train], plan, rng)
    owners.owner[images.train] = part
    owners.warnings += _warnings(settings, clients, owners.counts["moved"], n)
    return owners


def _warnings(settings: PartitionSettings, clients: int, moved: int, n: int) -> list[str]:
    """What makes the partition another than the one that was asked for."""
    warnings = []
    if settings.scheme in _LABEL_WISE and settings.alpha * clients < 0.5:
        warnings.append(
            f"partition.alpha {settings.alpha:g} is small for {clients} clients: the scheme {settings.scheme} leaves "
            "most of them almost empty; dirichlet_client keeps sizes equal"
        )
    if moved > _NOTABLE * n:
        warnings.append(
            f"to reach partition.min_size, {moved} of {n} images moved to other clients than the scheme "
            f"{settings.scheme} drew, so clients are more alike than asked"
        )
    return warnings


def _natural(images: Images, settings: PartitionSettings) -> Owners:
    """One client per site, under its name."""
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
    place = np.searchsorted(names, images.sites).clip(max=len(names) - 1)
    owner = np.where((names[place] == images.sites) & images.train, place, -1)
    return Owners(names, owner, categories_.numbered(images.sites), dropped=small)


def _categories(images: Images, settings: PartitionSettings, seed: int) -> np.ndarray:
    """Category of each image, numbered without gaps up to the highest; some may have no training image."""
    start = address(seed, f"partition/{settings.scheme}/categories")
    assert settings.clients is not None
    match settings.scheme:
        case "quantity":
            return np.zeros(len(images.train), dtype=np.int64)
        case "iid" if not settings.iid.stratified:
            return np.zeros(len(images.train), dtype=np.int64)
        case "dirichlet" | "iterative":
            smallest = settings.label_sets.smallest or settings.clients
            return categories_.label_sets(images.targets, images.train, smallest, settings.label_sets)
        case "cluster":
            return categories_.label_clusters(images.targets, images.train, settings.cluster, start)
        case "semantic":
            return categories_.image_clusters(images.images, images.train, settings.semantic, start)
    return categories_.primary_labels(images.targets, images.train, settings.primary)


def _plan(
    totals: np.ndarray, settings: PartitionSettings, rng: np.random.Generator, counts: dict[str, int]
) -> Callable[[], np.ndarray]:
    """What draws the scheme's plan."""
    clients, alpha, n = settings.clients, settings.alpha, int(totals.sum())
    assert clients is not None
    match settings.scheme:
        case "iid":
            return partial(allocations.evenly, totals, clients, rng)
        case "quantity":
            return lambda: allocations.sizes_by_quantity(n, clients, settings.quantity, rng)[None]
        case "shards":
            _require(clients * settings.shards.per_client <= n, "shards.per_client", n // clients, "images per client")
            return partial(allocations.by_shards, totals, clients, settings.shards.per_client, rng)
        case "classes_per_client":
            held = int((totals > 0).sum())
            _require(settings.classes_per_client.classes <= held, "classes_per_client.classes", held, "primary labels")
            return partial(allocations.by_classes, totals, clients, settings.classes_per_client.classes, rng)
        case "dirichlet_client" | "mixed" | "label_type":
            return partial(_client_wise, totals, settings, rng, counts)
    balance = settings.scheme == "dirichlet_label" and settings.dirichlet_label.balance
    return partial(allocations.by_label_balanced if balance else allocations.by_label, totals, clients, alpha, rng)


def _client_wise(
    totals: np.ndarray, settings: PartitionSettings, rng: np.random.Generator, counts: dict[str, int]
) -> np.ndarray:
    """Sizes first, then each client's mixture."""
    clients, n = settings.clients, int(totals.sum())
    assert clients is not None
    if settings.scheme == "mixed":
        drawn = partial(allocations.sizes_by_quantity, n, clients, settings.quantity, rng)
        sizes = settle(lambda: drawn()[None], settings.min_size, settings.redraws, counts)[0]
    else:
        sizes = allocations.evenly(np.array([n]), clients, rng)[0]
    shares, held = totals / n, int((totals > 0).sum())
    if settings.scheme != "label_type":
        base = shares * (held if settings.dirichlet_client.concentration == "per_label" else 1)
        return allocations.by_client(totals, sizes, allocations.draw_shares(rng, settings.alpha, base, clients), rng)
    types = settings.label_type.types
    if settings.label_type.mixture == "dominant":
        mixtures = allocations.dominant_mixtures(totals, types)
    else:
        mixtures = allocations.draw_shares(rng, settings.alpha, shares * held, types)
    return allocations.by_client(totals, sizes, mixtures[np.arange(clients) % types], rng)


def _iterative(
    images: Images, settings: PartitionSettings, found: np.ndarray, rng: np.random.Generator, counts: dict[str, int]
) -> np.ndarray:
    """Owners without a plan; they are not drawn again but repaired at once."""
    targets, clients = images.targets[images.train], settings.clients
    assert clients is not None
    shares = allocations.draw_shares(rng, settings.alpha, np.ones(clients), targets.shape[1])
    owner = iterative(targets, shares, np.full(clients, len(targets) / clients), rng)
    before = plan_of(found, owner, (int(found.max()) + 1, clients))
    after = fill_up(before, settings.min_size)
    counts["moved"] = int(abs(after - before).sum()) // 2
    return move(found, owner, after)


def _require(fits: bool, key: str, most: int, what: str) -> None:
    if not fits:
        raise UserError(f"partition.{key} is too large", where=f"partition.{key}", expected=f"at most {most} ({what})")
