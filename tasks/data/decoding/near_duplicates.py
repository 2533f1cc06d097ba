"""Near duplicates (bursts of one camera, resized copies), found by 64-bit perceptual hashes.

Two hashes within d bits agree completely in at least one of d + 1 bands of their bits (pigeonhole), so only hashes that
share a band are compared. This is exact, and much faster than comparing all pairs if d is small.
"""

from collections.abc import Iterator, Sequence

import numpy as np

BITS = 64
DEFAULT_DISTANCE = 6  # bits; unrelated photographs are some 32 apart
_MAX_LINKS = 1_000_000  # in memory before they are reduced


def perceptual_hash(image: np.ndarray) -> str:
    """Return the hash of an image [H, W, 3] uint8 as 16 hex digits (``imagehash.phash``)."""
    import imagehash
    from PIL import Image

    return str(imagehash.phash(Image.fromarray(image)))


def near_pairs(hashes: Sequence[str], distance: int) -> list[tuple[int, int]]:
    """Return links between hashes that differ in at most ``distance`` bits.

    Not every such pair is listed, but enough to connect the same groups, so the list is never longer than the hashes.

    Args:
        hashes: N times 16 hex digits.
        distance: Bits, 0 to 63.

    Returns:
        Pairs of positions (i, j), i < j.
    """
    if len(hashes) < 2:
        return []
    codes = np.array([int(text, 16) for text in hashes], dtype=np.uint64)
    values, inverse = np.unique(codes, return_inverse=True)
    groups = _groups(values, distance)[inverse]
    # The first position of each group is linked with the group's others.
    _, heads = np.unique(groups, return_index=True)
    head = heads[groups]
    others = np.flatnonzero(head != np.arange(len(codes)))
    return list(zip(head[others].tolist(), others.tolist(), strict=True))


def _groups(values: np.ndarray, distance: int) -> np.ndarray:
    """Return the group number, 0 upwards, of each of n different hashes."""
    groups = np.arange(len(values))
    links: list[np.ndarray] = []
    pending = 0
    for some in _close(values, distance):
        links.append(some)
        pending += some.shape[1]
        if pending > _MAX_LINKS:
            groups, links, pending = _joined(groups, links), [], 0
    return _joined(groups, links)


def _joined(groups: np.ndarray, links: list[np.ndarray]) -> np.ndarray:
    """Return the groups after merging those that are linked."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    if not links:
        return groups
    rows, columns = groups[np.concatenate(links, axis=1)]
    size = int(groups.max()) + 1
    matrix = coo_array((np.ones(len(rows), dtype=np.int8), (rows, columns)), shape=(size, size))
    numbers: np.ndarray = connected_components(matrix, directed=False)[1]
    return numbers[groups]


def _close(values: np.ndarray, distance: int) -> Iterator[np.ndarray]:
    """Yield positions of pairs within the distance, [2, k] at a time, a pair once for each band that it shares."""
    edges = np.linspace(0, BITS, distance + 2).round().astype(int)
    for low, high in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
        band = (values >> np.uint64(low)) & np.uint64(2 ** (high - low) - 1)
        order = np.argsort(band, kind="stable")
        _, counts = np.unique(band, return_counts=True)
        # How many of its band's hashes come after each one, in this order.
        after = np.repeat(np.cumsum(counts), counts) - np.arange(len(values)) - 1
        arranged, ahead = values[order], np.flatnonzero(after > 0)
        step = 0
        while len(ahead):
            step += 1
            near = np.bitwise_count(arranged[ahead] ^ arranged[ahead + step]) <= distance
            if near.any():
                yield order[np.stack([ahead[near], ahead[near] + step])]
            ahead = ahead[after[ahead] > step]
