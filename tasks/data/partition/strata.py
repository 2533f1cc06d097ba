"""Strata: what a scheme divides. Derived from the training images, applied to all images."""

from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np

from tasks.data.partition.settings import ClusterSettings, LabelSetSettings, SemanticSettings

if TYPE_CHECKING:
    from tasks.data.dataset import LazyImages

_SIDE = 8  # pixels a side of the reduced images whose principal components are taken
_BLOCK = 512  # images read at a time


def numbered(values: np.ndarray) -> np.ndarray:
    """Replace values by their rank among the distinct values, from 0, int64 [n]."""
    return np.unique(values, return_inverse=True)[1].astype(np.int64)


def primary_labels(targets: np.ndarray, train: np.ndarray, rule: str) -> np.ndarray:
    """Return one label of each image, int64 [n]: the column, or C for an image without a label.

    Args:
        targets: [n, C], non-zero where image i has label c.
        train: bool [n], the images in which labels are counted.
        rule: ``rarest`` (ties: the first column) or ``first``.
    """
    present = np.asarray(targets) != 0
    rank = present[train].sum(axis=0) if rule == "rarest" else np.arange(present.shape[1])
    cost = np.where(present, rank, len(present) + present.shape[1])
    return np.where(present.any(axis=1), cost.argmin(axis=1), present.shape[1])


def label_sets(targets: np.ndarray, train: np.ndarray, smallest: int, settings: LabelSetSettings) -> np.ndarray:
    """Return the stratum of each image by its label set, int64 [n].

    A set with fewer than ``smallest`` training images cannot be divided among as many clients. It, and any set beyond
    ``settings.cap``, joins the stratum of its label with the fewest images (ties: the first column), or the nearest
    set that is kept (Hamming or Jaccard distance; ties: the more frequent set). Images without a label are a stratum.
    """
    present = np.asarray(targets) != 0
    frequency = present[train].sum(axis=0)
    sets = [tuple(np.flatnonzero(row).tolist()) for row in present]
    counts = Counter(labels for labels, counted in zip(sets, train, strict=True) if counted and labels)
    by_count = sorted(counts, key=lambda labels: (-counts[labels], labels))
    kept = [labels for labels in by_count if counts[labels] >= smallest][: settings.cap]
    if not kept and settings.merge != "rarest":
        kept = by_count[:1]
    home = {labels: labels for labels in (*kept, ())}
    rare = sorted(set(sets) - set(home))
    if settings.merge == "rarest" or not kept:
        home |= {labels: (min(labels, key=lambda c: (frequency[c], c)),) for labels in rare}
    else:
        nearest = _distances(rare, kept, present.shape[1], settings.merge).argmin(axis=1)
        home |= {labels: kept[index] for labels, index in zip(rare, nearest, strict=True)}
    number = {key: index for index, key in enumerate(sorted(set(home.values())))}
    return np.array([number[home[labels]] for labels in sets], dtype=np.int64)


def label_clusters(targets: np.ndarray, train: np.ndarray, settings: ClusterSettings, seed: int) -> np.ndarray:
    """Return the stratum of each image by k-means over label vectors, int64 [n]."""
    vectors = (np.asarray(targets) != 0).astype(np.float64)
    if settings.weighting == "tfidf":
        vectors *= np.log((1 + train.sum()) / (1 + vectors[train].sum(axis=0))) + 1
        length = np.sqrt((vectors**2).sum(axis=1, keepdims=True))
        vectors = np.divide(vectors, length, out=vectors, where=length > 0)
    return _clusters(vectors, train, settings.clusters, seed)


def image_clusters(
    images: "LazyImages | np.ndarray", train: np.ndarray, settings: SemanticSettings, seed: int
) -> np.ndarray:
    """Return the stratum of each image by k-means over principal components of the reduced image, int64 [n].

    Args:
        images: uint8 [n, 3, S, S], or an object that reads images when it is sliced.
        train: bool [n], the images that components and clusters are fitted to.
        settings: Numbers of components and clusters.
        seed: Initialises k-means.
    """
    blocks = [_reduced(np.asarray(images[start : start + _BLOCK])) for start in range(0, len(train), _BLOCK)]
    small = np.concatenate(blocks)
    mean = small[train].mean(axis=0, dtype=np.float64)
    centred = small - mean
    _, axes = np.linalg.eigh(centred[train].T @ centred[train])  # by ascending variance
    return _clusters(centred @ axes[:, -settings.components :], train, settings.clusters, seed)


def _clusters(vectors: np.ndarray, train: np.ndarray, clusters: int, seed: int) -> np.ndarray:
    """Run k-means on the distinct vectors, weighted by their counts; never with more clusters than vectors."""
    from sklearn.cluster import KMeans

    points, weights = np.unique(vectors[train], axis=0, return_counts=True)
    means = KMeans(min(clusters, len(points)), n_init=4, random_state=seed % 2**32)
    means.fit(points, sample_weight=weights)
    return np.asarray(means.predict(vectors), dtype=np.int64)


def _reduced(images: np.ndarray) -> np.ndarray:
    """Average blocks of pixels, float32 [n, 3 * side * side] in 0..1."""
    side = min(_SIDE, images.shape[-1])
    starts = np.arange(side) * images.shape[-1] // side
    sums: Any = images.astype(np.float32) / 255
    for axis in (2, 3):
        sums = np.add.reduceat(sums, starts, axis=axis)
    widths = np.diff(starts, append=images.shape[-1])
    return np.asarray(sums / np.multiply.outer(widths, widths), dtype=np.float32).reshape(len(images), -1)


def _distances(left: list[tuple[int, ...]], right: list[tuple[int, ...]], labels: int, kind: str) -> np.ndarray:
    """Compute Hamming or Jaccard distances between label sets, [len(left), len(right)]."""
    a, b = np.zeros((len(left), labels), dtype=np.int64), np.zeros((len(right), labels), dtype=np.int64)
    for matrix, sets in ((a, left), (b, right)):
        for row, members in enumerate(sets):
            matrix[row, list(members)] = 1
    common = a @ b.T
    different = a.sum(axis=1)[:, None] + b.sum(axis=1)[None] - 2 * common
    return different / np.maximum(different + common, 1) if kind == "jaccard" else different
