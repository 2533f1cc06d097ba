"""Labelled and unlabelled pools for semi-supervised methods, and the stream chunks of unlabelled images."""

import numpy as np


def choose_labelled(strata: np.ndarray, per_class: int, rng: np.random.Generator) -> np.ndarray:
    """Choose the labelled images, bool [n]: ``per_class`` of each stratum at random, or all if there are fewer."""
    return _rank_within_stratum(strata, rng) < per_class


def choose_labelled_per_client(
    strata: np.ndarray, clients: int, per_class: int, rng: np.random.Generator
) -> np.ndarray:
    """Assign the same number of labelled images of each stratum to every client, int64 [n]: the client, or -1.

    Where a stratum has too few, clients take turns, starting with a different client for each stratum.
    """
    rank = _rank_within_stratum(strata, rng)
    return np.where(rank < clients * per_class, (rank + strata) % clients, -1)


def stream_chunks(count: int, chunks: int, rng: np.random.Generator) -> np.ndarray:
    """Divide ``count`` images at random into ``chunks`` whose sizes differ by at most one, int64 [count]."""
    return rng.permutation(np.arange(count) % chunks)


def _rank_within_stratum(strata: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return the random rank of each image in its stratum, int64 [n]."""
    order = rng.permutation(len(strata))
    order = order[np.argsort(strata[order], kind="stable")]
    rank = np.empty(len(strata), dtype=np.int64)
    sizes = np.bincount(strata)
    rank[order] = np.arange(len(strata)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return rank
