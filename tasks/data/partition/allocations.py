"""Allocation matrices of the single-label schemes: how many images of each stratum every client gets.

An allocation is an int64 matrix [G, K] of G strata and K clients, whose row g adds up to ``totals[g]``, the images of
stratum g. So no image is lost or given out twice. ``assignment`` chooses the images themselves.
"""

from collections.abc import Sequence

import numpy as np

from models.errors import UserError
from tasks.data.partition.settings import ClassesSettings, QuantitySettings

_INFINITE_ALPHA = 1e12  # a larger concentration changes less than one image in a million


def sample_shares(rng: np.random.Generator, alpha: float, base: np.ndarray, count: int) -> np.ndarray:
    """Sample shares from Dirichlet(alpha * base), float64 [count, K]; infinite alpha gives the shares of ``base``.

    Sampled as logarithms, log G(a) = log G(a + 1) + log(U) / a: Gamma(a) itself underflows to 0 for small a, and
    the shares become 0/0. An entry with base 0 gets share 0.
    """
    base = np.asarray(base, dtype=np.float64)
    if alpha >= _INFINITE_ALPHA:
        return np.tile(base / base.sum(), (count, 1))
    positive = base > 0
    a = alpha * base[positive]
    logs = np.log(rng.standard_gamma(a + 1, (count, len(a)))) + np.log1p(-rng.random((count, len(a)))) / a
    return _insert_zeros(_softmax(logs), positive)


def round_to_integers(totals: np.ndarray, shares: np.ndarray, offset: float | np.ndarray = 0.5) -> np.ndarray:
    """Round ``totals[g] * shares[g]`` to whole numbers [G, K] that add up to the totals.

    The cumulative sums are rounded, not the shares. A random ``offset`` [G, 1] in [0, 1) makes the expected numbers
    exact.
    """
    totals = np.asarray(totals, dtype=np.int64)[:, None]
    edges = np.floor(np.cumsum(shares, axis=1)[:, :-1] * totals + offset).astype(np.int64)
    return np.diff(np.clip(edges, 0, totals), prepend=0, append=totals, axis=1)


def round_robin(totals: np.ndarray, clients: int, rng: np.random.Generator) -> np.ndarray:
    """Allocate the images of each stratum to the clients in turn.

    The clients' sizes differ by at most one, and so do their numbers of images of each stratum.
    """
    ends = np.cumsum(totals)[:, None]
    position = rng.permutation(clients)[None, :]
    # Of the first x images, the client at position j of K has received ceil((x - j) / K).
    return (ends - position + clients - 1) // clients - (ends - totals[:, None] - position + clients - 1) // clients


def by_sizes(totals: np.ndarray, sizes: Sequence[float]) -> np.ndarray:
    """Divide each stratum in proportion to the relative sizes of the clients."""
    shares = np.asarray(sizes, dtype=np.float64) / sum(sizes)
    return round_to_integers(totals, np.tile(shares, (len(totals), 1)))


def by_label(totals: np.ndarray, clients: int, alpha: float, rng: np.random.Generator) -> np.ndarray:
    """Divide each stratum by shares sampled for it (label-wise Dirichlet; Yurochkin et al. 2019)."""
    return round_to_integers(totals, sample_shares(rng, alpha, np.ones(clients), len(totals)))


def by_label_balanced(totals: np.ndarray, clients: int, alpha: float, rng: np.random.Generator) -> np.ndarray:
    """Divide as ``by_label``, but give a client that has n/K images no share of the next stratum.

    Where no share is left (0/0 in published versions) the smallest clients take the stratum.
    """
    allocation = np.zeros((len(totals), clients), dtype=np.int64)
    for g, shares in enumerate(sample_shares(rng, alpha, np.ones(clients), len(totals))):
        sizes = allocation.sum(axis=0)
        left = np.where(sizes * clients < totals.sum(), shares, 0)
        if left.sum() == 0:
            left = (sizes == sizes.min()).astype(np.float64)
        allocation[g] = round_to_integers(totals[g : g + 1], left[None] / left.sum())[0]
    return allocation


def by_client(totals: np.ndarray, sizes: np.ndarray, mixtures: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Sample ``sizes[k]`` images of client k by its mixture, without replacement (client-wise; Hsu et al. 2019).

    A used-up stratum is masked and the mixture renormalised; a client whose whole mixture is used up samples the
    remaining images in their own proportions. Clients sample in random order, so that the leftovers do not always
    go to the last ones.

    Args:
        totals: [G].
        sizes: [K], adding up to ``totals.sum()``.
        mixtures: [K, G], rows that add up to 1.
        rng: Source of all samples.
    """
    assert sizes.sum() == totals.sum()
    left = np.array(totals, dtype=np.int64)
    allocation = np.zeros((len(totals), len(sizes)), dtype=np.int64)
    for k in rng.permutation(len(sizes)):
        wanted = int(sizes[k])
        while wanted:  # each pass completes the client or uses up a stratum
            mixture = np.where(left > 0, mixtures[k], 0)
            # A mass below the smallest normal number has no exact shares.
            weights = mixture if mixture.sum() > np.finfo(np.float64).tiny else left.astype(np.float64)
            taken = np.minimum(rng.multinomial(wanted, weights / weights.sum()), left)
            allocation[:, k] += taken
            left -= taken
            wanted -= int(taken.sum())
    return allocation


def by_shards(totals: np.ndarray, clients: int, per_client: int, rng: np.random.Generator) -> np.ndarray:
    """Sort by stratum, cut into K * s shards that differ by at most one image, give each client s shards.

    As in FedAvg (McMahan et al. 2017). A shard may contain several strata. No image is left over.
    """
    shards = clients * per_client
    edges, ends = np.arange(shards + 1) * int(totals.sum()) // shards, np.cumsum(totals)
    first, last = np.maximum(edges[:-1, None], ends - totals), np.minimum(edges[1:, None], ends)
    allocation = np.zeros((clients, len(totals)), dtype=np.int64)
    np.add.at(allocation, rng.permutation(shards) % clients, np.clip(last - first, 0, None))
    return allocation.T


def by_classes(totals: np.ndarray, clients: int, settings: ClassesSettings, rng: np.random.Generator) -> np.ndarray:
    """Give each client a few strata, ``settings.classes``, and divide each stratum among its owners.

    A stratum without an owner goes to the client that is smallest at that point, so no image is lost.

    Raises:
        UserError: A listed stratum has no images.
    """
    nonempty = np.flatnonzero(totals)
    if settings.listed is not None:
        chosen = choose_listed(settings.listed, nonempty)
    elif settings.choice == "blocks":
        chosen = choose_in_blocks(clients, len(nonempty), settings.classes)
    else:
        chosen = choose_at_random(clients, len(nonempty), settings.classes, rng)
    allocation = np.zeros((len(totals), clients), dtype=np.int64)
    owned = chosen.any(axis=0)
    if settings.sizes == "uneven":
        for g, owners in zip(nonempty[owned], chosen.T[owned], strict=True):
            allocation[g, owners] = uneven_sizes(int(totals[g]), int(owners.sum()), rng)
    else:
        shares = chosen.T[owned] / chosen.sum(axis=0)[owned, None]
        allocation[nonempty[owned]] = round_to_integers(totals[nonempty[owned]], shares)
    for g in nonempty[~owned]:
        allocation[g, allocation.sum(axis=0).argmin()] = totals[g]
    return allocation


def choose_at_random(clients: int, strata: int, classes: int, rng: np.random.Generator) -> np.ndarray:
    """Choose stratum i mod G and ``classes - 1`` others at random for client i, bool [K, G] (NIID-Bench, ``#C=k``)."""
    order = rng.random((clients, strata))
    order[np.arange(clients), np.arange(clients) % strata] = -1
    chosen: np.ndarray = np.argsort(order, axis=1).argsort(axis=1) < classes
    return chosen


def choose_listed(listed: list[list[int]], nonempty: np.ndarray) -> np.ndarray:
    """Choose the strata that ``listed`` gives each client, bool [K, G], columns in the order of ``nonempty`` [G].

    Raises:
        UserError: A listed stratum is not in ``nonempty``.
    """
    unknown = sorted({label for labels in listed for label in labels} - set(nonempty.tolist()))
    if unknown:
        raise UserError(
            "partition.classes_per_client.listed names labels without images",
            where="partition.classes_per_client.listed",
            expected=f"numbers of labels that are the primary label of an image: {nonempty.tolist()}",
            found=", ".join(map(str, unknown)),
        )
    return np.array([np.isin(nonempty, labels) for labels in listed])


def choose_in_blocks(clients: int, strata: int, classes: int) -> np.ndarray:
    """Give each stratum in turn to the first ceil(K * classes / G) clients that lack strata, bool [K, G].

    So consecutive clients have the same strata (PFLlib's pathological split). The last strata have no owner where
    rounding up has used up the clients.
    """
    chosen = np.zeros((clients, strata), dtype=bool)
    for g in range(strata):
        lacking = np.flatnonzero(chosen.sum(axis=1) < classes)
        chosen[lacking[: -(-clients * classes // strata)], g] = True
    return chosen


def uneven_sizes(total: int, owners: int, rng: np.random.Generator) -> np.ndarray:
    """Sample sizes that add up to ``total``, int64 [owners].

    All but the last are from a tenth to the whole of an even share; the last one takes the rest, so it is the largest
    (PFLlib). Where an even share is below two images, all are even.
    """
    even = total // owners
    if even < 2:
        return round_to_integers(np.array([total]), np.full((1, owners), 1 / owners))[0]
    sizes = rng.integers(max(even // 10, 1), even, owners)
    sizes[-1] = total - sizes[:-1].sum()
    return sizes


def sizes_by_quantity(n: int, clients: int, settings: QuantitySettings, rng: np.random.Generator) -> np.ndarray:
    """Sample uneven sizes, int64 [K], that add up to n."""
    if settings.kind == "dirichlet":
        shares = sample_shares(rng, settings.alpha, np.ones(clients), 1)
    else:
        shares = _softmax(rng.normal(0, settings.sigma, (1, clients)))
    return round_to_integers(np.array([n]), shares)[0]


def dominant_mixtures(totals: np.ndarray, types: int) -> np.ndarray:
    """Return FedMatch's mixtures [types, G]: one stratum 0.5, its two neighbours 0.15 each, the others share 0.2."""
    nonempty = totals > 0
    count = int(nonempty.sum())
    mixtures = np.full((types, count), 0.2 / max(count - 3, 1))
    rows = np.arange(types)
    for shift, weight in ((-1, 0.15), (1, 0.15), (0, 0.5)):  # the dominant one last: with few strata they coincide
        mixtures[rows, (rows + shift) % count] = weight
    return _insert_zeros(mixtures / mixtures.sum(axis=1, keepdims=True), nonempty)


def _softmax(logs: np.ndarray) -> np.ndarray:
    weights = np.exp(logs - logs.max(axis=1, keepdims=True))
    return weights / weights.sum(axis=1, keepdims=True)


def _insert_zeros(values: np.ndarray, positive: np.ndarray) -> np.ndarray:
    """Put the columns of ``values`` where ``positive`` is true, 0 elsewhere."""
    out = np.zeros((len(values), len(positive)))
    out[:, positive] = values
    return out
