"""What a client tests on: a part of its own images, or test images in the proportions of its training images."""

import numpy as np

from models.errors import UserError
from tasks.core.names import visible_name
from tasks.core.randomness import address
from tasks.data.partition.allocations import cut
from tasks.data.partition.assignment import deal
from tasks.data.partition.settings import LocalSettings
from tasks.data.split import stratified_split


def local_splits(
    targets: np.ndarray, groups: np.ndarray, owner: np.ndarray, names: np.ndarray, settings: LocalSettings, seed: int
) -> np.ndarray:
    """Each client's images as train, val and test, str [n]; labels in nearly equal shares (``stratified_split``).

    A group (duplicates, one photograph) is never divided. One that several clients hold is for training everywhere:
    else a model that one client trained would be tested at another on what it has seen. Shares are of the others.

    Args:
        targets: uint8 [n, C].
        groups: str [n]; an image with "" is by itself.
        owner: int64 [n], the client's number; -1 for an image that is for training wherever it is.
        names: The clients.
        settings: The shares.
        seed: Decides ties, with the client's name.

    Raises:
        UserError: A client has no image left to train or to test on.
    """
    alone = np.array([group or f"\0{i}" for i, group in enumerate(groups.tolist())])
    unit = np.unique(alone, return_inverse=True)[1]
    lowest, highest = np.full(len(unit), len(names)), np.full(len(unit), -1)
    np.minimum.at(lowest, unit, owner)
    np.maximum.at(highest, unit, owner)
    free = ((lowest == highest) & (lowest >= 0))[unit]
    splits = np.full(len(targets), "train", dtype="<U5")
    fractions = {"train": 1 - settings.val - settings.test, "val": settings.val, "test": settings.test}
    for k, name in enumerate(names.tolist()):
        held = owner == k
        rows = np.flatnonzero(held & free)
        own = address(seed, "partition/local", client=name)
        splits[rows] = stratified_split(targets[rows], fractions, own, unit[rows])
        if not {"train", "test"} <= set(splits[held].tolist()):
            raise UserError(
                "a client has no image left to train or to test on",
                where="partition.local",
                found=f"{visible_name(name)}: {held.sum()} images, {len(np.unique(unit[rows]))} that no other client "
                "has a copy of",
                hint="raise partition.min_size, change the shares, or set partition.local.scheme to global or matched",
            )
    return splits


def matched(categories: np.ndarray, plan: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Owners of images that are dealt in the proportions of a plan, int64 [n].

    Category g is cut by the clients' shares of its training images. One without a training image is cut by the
    clients' sizes. Rounding is random with the right mean, so that small categories favour nobody.

    Args:
        categories: int64 [n].
        plan: Training images by category and client [G, K].
        rng: Source of all draws.
    """
    weights = np.where(plan.sum(axis=1, keepdims=True) > 0, plan, plan.sum(axis=0)).astype(np.float64)
    totals = np.bincount(categories, minlength=len(plan))
    shares = weights / weights.sum(axis=1, keepdims=True)
    return deal(categories, cut(totals, shares, rng.random((len(plan), 1))), rng)
