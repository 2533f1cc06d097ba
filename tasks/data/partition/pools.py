"""Labelled and unlabelled pools for semi-supervised methods, and the parts in which unlabelled images arrive."""

import numpy as np


def choose(categories: np.ndarray, per_class: int, rng: np.random.Generator) -> np.ndarray:
    """Which images are labelled, bool [n]: ``per_class`` of each category at random, or all if there are fewer."""
    return _turn(categories, rng) < per_class


def choose_for_clients(categories: np.ndarray, clients: int, per_class: int, rng: np.random.Generator) -> np.ndarray:
    """Labelled images with the same number of each category for every client, int64 [n]: the client, or -1.

    Where a category has too few, clients take turns, beginning with another client for each category.
    """
    turn = _turn(categories, rng)
    return np.where(turn < clients * per_class, (turn + categories) % clients, -1)


def arrivals(count: int, steps: int, rng: np.random.Generator) -> np.ndarray:
    """In which of ``steps`` parts each of ``count`` images arrives, int64 [count]; parts differ by one at most."""
    return rng.permutation(np.arange(count) % steps)


def _turn(categories: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Place of each image in its category, shuffled, int64 [n]."""
    order = rng.permutation(len(categories))
    order = order[np.argsort(categories[order], kind="stable")]
    turn = np.empty(len(categories), dtype=np.int64)
    sizes = np.bincount(categories)
    turn[order] = np.arange(len(categories)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return turn
