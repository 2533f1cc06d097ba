"""From allocations to images: sample until every client is large enough, or repair; then choose the images."""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np


@dataclass
class RepairCounts:
    """What it took to reach ``min_size``.

    Attributes:
        resamples: Allocations that were rejected and sampled again.
        reassigned: Images that went to another client than the scheme sampled.
    """

    resamples: int = 0
    reassigned: int = 0


@dataclass
class Assignment:
    """The clients and the images that each of them owns.

    Attributes:
        names: The K clients, sorted.
        owner: int64 [n], number of the client; -1 for images that are not for training or belong to no client.
        strata: int64 [n], the strata by which the scheme divides.
        repair: What it took to reach ``min_size``.
        dropped: Sites without a client, and their training images.
        warnings: Messages for the user.
    """

    names: np.ndarray
    owner: np.ndarray
    strata: np.ndarray
    repair: RepairCounts = field(default_factory=RepairCounts)
    dropped: dict[str, int] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)

    @property
    def allocation(self) -> np.ndarray:
        """Training images by stratum and client, int64 [G, K]."""
        owned = self.owner >= 0
        shape = (int(self.strata.max()) + 1, len(self.names))
        return count_allocation(self.strata[owned], self.owner[owned], shape)


def draw_until_min_size(
    sample: Callable[[], np.ndarray], min_size: int, resamples: int, repair: RepairCounts | None = None
) -> np.ndarray:
    """Return the first of ``1 + resamples`` allocations in which every client has ``min_size`` images.

    If none has, repair the last one.

    Args:
        sample: Samples an allocation [G, K].
        min_size: Fewest images of a client; K * min_size is at most the number of images.
        resamples: Most allocations that are rejected.
        repair: The counts of this call are added to it.
    """
    attempt, allocation = 0, sample()
    while allocation.sum(axis=0).min() < min_size and attempt < resamples:
        attempt, allocation = attempt + 1, sample()
    repaired = repair_min_size(allocation, min_size)
    if repair is not None:
        repair.resamples += attempt
        repair.reassigned += count_reassigned(allocation, repaired)
    return repaired


def repair_min_size(allocation: np.ndarray, min_size: int) -> np.ndarray:
    """Return an allocation in which every client has ``min_size`` images; deterministic.

    The largest client gives to the smallest, first from the strata that the smallest already has, and of those from
    the one of which the largest has most images.
    """
    allocation = allocation.copy()
    sizes = allocation.sum(axis=0)
    assert len(sizes) * min_size <= sizes.sum(), (len(sizes), min_size, sizes.sum())
    while sizes.min() < min_size:
        recipient, donor = int(sizes.argmin()), int(sizes.argmax())
        available = allocation[:, donor]
        shared = np.where(allocation[:, recipient] > 0, available, 0)
        stratum = int((shared if shared.any() else available).argmax())
        count = min(min_size - sizes[recipient], sizes[donor] - min_size, available[stratum])
        for client, change in ((recipient, count), (donor, -count)):
            allocation[stratum, client] += change
            sizes[client] += change
    return allocation


def assign_images(strata: np.ndarray, allocation: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Choose at random which images of a stratum each client gets; return the owners, int64 [n].

    Args:
        strata: int [n], in 0..G-1.
        allocation: [G, K]; row g adds up to the images of stratum g.
        rng: Source of the choice.
    """
    order = rng.permutation(len(strata))
    order = order[np.argsort(strata[order], kind="stable")]
    owner = np.empty(len(strata), dtype=np.int64)
    owner[order] = np.repeat(np.tile(np.arange(allocation.shape[1]), allocation.shape[0]), allocation.ravel())
    return owner


def count_allocation(strata: np.ndarray, owner: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    """Count the images by stratum and owner, int64 [G, K]."""
    allocation = np.zeros(shape, dtype=np.int64)
    np.add.at(allocation, (strata, owner), 1)
    return allocation


def count_reassigned(before: np.ndarray, after: np.ndarray) -> int:
    """Count the images that change their client between two allocations of the same images."""
    return int(abs(after - before).sum()) // 2


def reassign(strata: np.ndarray, owner: np.ndarray, allocation: np.ndarray) -> np.ndarray:
    """Change as few owners as the allocation requires; a client gives away the last of its images."""
    owner = owner.copy()
    before = count_allocation(strata, owner, (allocation.shape[0], allocation.shape[1]))
    for g in np.flatnonzero((allocation != before).any(axis=1)):
        surplus = before[g] - allocation[g]
        rows = np.flatnonzero(strata == g)
        given = [rows[owner[rows] == k][-surplus[k] :] for k in np.flatnonzero(surplus > 0)]
        owner[np.concatenate(given)] = np.repeat(np.arange(allocation.shape[1]), np.clip(-surplus, 0, None))
    return owner
