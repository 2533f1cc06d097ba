"""Dirichlet-targeted iterative stratification: each label is skewed for itself, label correlations are kept."""

import numpy as np


def iterative(targets: np.ndarray, shares: np.ndarray, sizes: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Owners such that label c is spread over the clients nearly as ``shares[c]`` says, int64 [n].

    Client k is to get ``shares[c, k] * n_c`` images with label c and ``sizes[k]`` images. The label with the fewest
    images that have no owner yet comes first (ties: the first column). Each of its images goes to the client that
    lacks most of this label, ties to the one that lacks most images, then at random; then the client lacks one less
    of every label of the image. Images without a label go where most images are lacking. With equal shares this is
    the iterative stratification of Sechidis, Tsoumakas and Vlahavas (2011).

    Args:
        targets: [n, C], non-zero where image i has label c.
        shares: [C, K], rows that add up to 1.
        sizes: Wanted images per client [K].
        rng: Decides what is still tied.
    """
    present = np.asarray(targets) != 0
    lacking = shares * present.sum(axis=0)[:, None]
    room = np.array(sizes, dtype=np.float64)
    owner = np.full(len(present), -1, dtype=np.int64)
    unassigned = present.sum(axis=0)

    def give(row: int, candidates: np.ndarray) -> None:
        best = candidates[room[candidates] == room[candidates].max()]
        client = int(best[0]) if len(best) == 1 else int(rng.choice(best))
        owner[row] = client
        room[client] -= 1
        lacking[present[row], client] -= 1
        unassigned[present[row]] -= 1

    while unassigned.any():
        label = int(np.where(unassigned > 0, unassigned, len(present) + 1).argmin())
        for row in np.flatnonzero(present[:, label] & (owner < 0)).tolist():
            give(row, np.flatnonzero(lacking[label] == lacking[label].max()))
    for row in np.flatnonzero(owner < 0).tolist():
        give(row, np.arange(len(room)))
    return owner
