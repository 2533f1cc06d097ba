"""A data set in memory for tests of the partition."""

from pathlib import Path

import numpy as np

from tasks.data.dataset import Dataset


def in_memory(targets, splits=None, sites=None, groups=None, images=None, ids=None):
    n = len(targets)
    blank = np.zeros((n, 3, 8, 8), dtype=np.uint8)
    return Dataset(
        root=Path(),
        classes=[f"label {c}" for c in range(targets.shape[1])],
        images=blank if images is None else images,
        targets=np.asarray(targets, dtype=np.uint8),
        sites=np.array(["a", "b", "c"])[np.arange(n) % 3] if sites is None else np.array(sites),
        splits=np.full(n, "train") if splits is None else np.array(splits),
        digest="d" * 64,
        sample_ids=np.array([f"{i * 7919 % 100003:08d}" for i in range(n)]) if ids is None else np.array(ids),
        groups=np.full(n, "") if groups is None else np.array(groups),
    )


def random_dataset(n, labels=5, seed=0, **kwargs):
    """Return n images with labels of different frequency; some images have no label."""
    rng = np.random.default_rng(seed)
    targets = rng.random((n, labels)) < rng.uniform(0.05, 0.5, labels)
    return in_memory(targets, images=rng.integers(0, 256, (n, 3, 8, 8), dtype=np.uint8), **kwargs)


def shuffled(dataset, seed=0):
    """Return the same images in another order."""
    order = np.random.default_rng(seed).permutation(len(dataset.targets))
    names = ("targets", "splits", "sites", "groups", "images")
    parts = {name: getattr(dataset, name)[order] for name in names}
    return in_memory(ids=dataset.sample_ids[order], **parts)


def owners_of(dataset, division):
    """Map sample id -> (client, split, pool, chunk)."""
    return {
        dataset.sample_ids[i]: (client, split, pool, chunk)
        for client, rows in division.rows.items()
        for i, split, pool, chunk in zip(*(column.tolist() for column in rows.columns), strict=True)
    }
