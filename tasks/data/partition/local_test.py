"""Test images of a client: a part of its own images, or test images in the proportions of its training images."""

import numpy as np

from models.errors import UserError
from tasks.core.names import visible_name
from tasks.core.randomness import derive_seed
from tasks.data.partition.allocations import round_to_integers
from tasks.data.partition.assignment import assign_images
from tasks.data.partition.settings import LocalSettings
from tasks.data.split import stratified_split


def local_splits(
    targets: np.ndarray, groups: np.ndarray, owner: np.ndarray, names: np.ndarray, settings: LocalSettings, seed: int
) -> np.ndarray:
    """Split each client's images into train, val and test, str [n], stratified over labels (``stratified_split``).

    A group (duplicates, one photograph) is never divided. A group of several clients is training data at all of
    them: else one client's model would be tested on images that another client trained on. The shares are of the
    other images.

    Args:
        targets: uint8 [n, C].
        groups: str [n]; an image with "" is a group of one.
        owner: int64 [n], the client's number; -1 for an image that is training data in any case.
        names: The clients.
        settings: The shares.
        seed: Breaks ties, together with the client's name.

    Raises:
        UserError: A client has no image left to train or to test on.
    """
    keys = np.array([group or f"\0{i}" for i, group in enumerate(groups.tolist())])
    group_of = np.unique(keys, return_inverse=True)[1]
    lowest, highest = np.full(len(group_of), len(names)), np.full(len(group_of), -1)
    np.minimum.at(lowest, group_of, owner)
    np.maximum.at(highest, group_of, owner)
    free = ((lowest == highest) & (lowest >= 0))[group_of]
    splits = np.full(len(targets), "train", dtype="<U5")
    fractions = {"train": 1 - settings.val - settings.test, "val": settings.val, "test": settings.test}
    for k, name in enumerate(names.tolist()):
        owned = owner == k
        rows = np.flatnonzero(owned & free)
        client_seed = derive_seed(seed, "partition/local", client=name)
        splits[rows] = stratified_split(targets[rows], fractions, client_seed, group_of[rows])
        if not {"train", "test"} <= set(splits[owned].tolist()):
            raise UserError(
                "a client has no image left to train or to test on",
                where="partition.local",
                found=f"{visible_name(name)}: {owned.sum()} images, {len(np.unique(group_of[rows]))} that no other "
                "client has a copy of",
                hint="raise partition.min_size, change the shares, or set partition.local.scheme to global or matched",
            )
    return splits


def assign_in_proportion(strata: np.ndarray, allocation: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Assign images to clients in the proportions of an allocation of training images, int64 [n].

    Stratum g is divided by the clients' shares of its training images; a stratum without training images by the
    clients' sizes. Rounding is random and unbiased, so that small strata favour no client.

    Args:
        strata: int64 [n].
        allocation: Training images by stratum and client [G, K].
        rng: Source of all samples.
    """
    trained = allocation.sum(axis=1, keepdims=True) > 0
    weights = np.where(trained, allocation, allocation.sum(axis=0)).astype(np.float64)
    totals = np.bincount(strata, minlength=len(allocation))
    shares = weights / weights.sum(axis=1, keepdims=True)
    offset = rng.random((len(allocation), 1))
    return assign_images(strata, round_to_integers(totals, shares, offset), rng)
