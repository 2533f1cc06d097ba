"""Test images whose labels are distributed like those of a client's training images."""

import numpy as np

from tasks.core.problem_kind import Kind


def matched_rows(trained: np.ndarray, tested: np.ndarray, kind: Kind, rng: np.random.Generator) -> np.ndarray:
    """Draw test images whose label sets are as frequent as among a client's training images.

    The draw is systematic: an image that is expected e times is drawn floor(e) or ceil(e) times. As many images are
    drawn as there are test images that fit.

    Args:
        trained: Targets 0/1 of the client's training images [M, C].
        tested: Targets 0/1 of the test images [N, C].
        kind: ``single_label``: a class without test images is left out. ``multi_label``: for a label set without test
            images those of the nearest sets (fewest labels that differ) are drawn.
        rng: Source of the draw.

    Returns:
        Positions among the test images, int64 [n], ascending; images may repeat. Empty if nothing fits.
    """
    shares, group = matched_shares(trained, tested, kind)
    if not shares.any():
        return np.zeros(0, np.int64)
    expected = shares * np.count_nonzero(shares)
    order = rng.permutation(len(tested))
    order = order[np.argsort(group[order], kind="stable")]  # images of a label set in random order, beside each other
    ends = np.floor(np.cumsum(expected[order]) + rng.random() + 1e-9).astype(np.int64)
    return np.sort(np.repeat(order, np.diff(ends, prepend=0)))


def matched_shares(trained: np.ndarray, tested: np.ndarray, kind: Kind) -> tuple[np.ndarray, np.ndarray]:
    """Return each test image's share of the draw, float64 [N], summing to 1 or all 0, and its label set's number [N].

    Images of one label set have equal shares.
    """
    from scipy.spatial.distance import cdist

    if not len(trained) or not len(tested):
        return np.zeros(len(tested)), np.zeros(len(tested), np.int64)
    sets, group, sizes = np.unique(tested, axis=0, return_inverse=True, return_counts=True)
    wanted, counts = np.unique(trained, axis=0, return_counts=True)
    distances = cdist(wanted.astype(np.float64), sets.astype(np.float64), "cityblock")
    nearest = distances == distances.min(axis=1, keepdims=True)
    if kind == "single_label":
        nearest &= distances == 0
    images = nearest @ sizes  # test images that fit each label set of the client
    per_image = np.divide(counts, images, out=np.zeros(len(counts)), where=images > 0)
    shares = (per_image @ nearest)[group.ravel()]
    total = shares.sum()
    return (shares / total if total else shares), group.ravel()
