"""Dirichlet-targeted iterative stratification: skews each label separately and preserves label correlations."""

import numpy as np


def iterative(targets: np.ndarray, shares: np.ndarray, sizes: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Assign owners, int64 [n], such that the images with label c are divided nearly as ``shares[c]``.

    The target of client k is ``shares[c, k] * n_c`` images with label c and ``sizes[k]`` images. The label with the
    fewest unassigned images comes first (ties: the first column). Each of its images goes to the client that lacks
    most of this label, ties to the one that lacks most images, then at random; then the client lacks one less of
    every label of the image. Images without a label go to the client that lacks most images. With equal shares this
    is the iterative stratification of Sechidis, Tsoumakas and Vlahavas (2011).

    Args:
        targets: [n, C], non-zero where image i has label c.
        shares: [C, K], rows that add up to 1.
        sizes: Target number of images per client [K].
        rng: Breaks the remaining ties.
    """
    present = np.asarray(targets) != 0
    lacking = shares * present.sum(axis=0)[:, None]
    lacking_images = np.array(sizes, dtype=np.float64)
    owner = np.full(len(present), -1, dtype=np.int64)
    unassigned = present.sum(axis=0)

    def assign(row: int, candidates: np.ndarray) -> None:
        best = candidates[lacking_images[candidates] == lacking_images[candidates].max()]
        client = int(best[0]) if len(best) == 1 else int(rng.choice(best))
        owner[row] = client
        lacking_images[client] -= 1
        lacking[present[row], client] -= 1
        unassigned[present[row]] -= 1

    while unassigned.any():
        label = int(np.where(unassigned > 0, unassigned, len(present) + 1).argmin())
        for row in np.flatnonzero(present[:, label] & (owner < 0)).tolist():
            assign(row, np.flatnonzero(lacking[label] == lacking[label].max()))
    for row in np.flatnonzero(owner < 0).tolist():
        assign(row, np.arange(len(lacking_images)))
    return owner
