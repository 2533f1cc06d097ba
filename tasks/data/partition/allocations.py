"""Single-label schemes as plans: how many images of each category every client gets.

A plan is an int64 matrix [G, K] whose row g adds up to ``totals[g]``, the images of category g. So no image is
lost or dealt twice, whatever is drawn. ``deal`` says which images they are.
"""

import numpy as np

from tasks.data.partition.settings import QuantitySettings

_ENDLESS = 1e12  # a concentration above it differs from infinity by less than one image in a million


def draw_shares(rng: np.random.Generator, alpha: float, base: np.ndarray, count: int) -> np.ndarray:
    """Shares from Dirichlet(alpha * base), float64 [count, K]; infinite alpha gives the shares of ``base``.

    Drawn as logarithms, log G(a) = log G(a + 1) + log(U) / a, since Gamma(a) itself underflows to 0 for small a and
    shares of 0/0 follow. An entry with base 0 gets share 0.
    """
    base = np.asarray(base, dtype=np.float64)
    if alpha >= _ENDLESS:
        return np.tile(base / base.sum(), (count, 1))
    held = base > 0
    a = alpha * base[held]
    logs = np.log(rng.standard_gamma(a + 1, (count, len(a)))) + np.log1p(-rng.random((count, len(a)))) / a
    return _spread(_normalised(logs), held)


def cut(totals: np.ndarray, shares: np.ndarray, offset: float | np.ndarray = 0.5) -> np.ndarray:
    """Whole numbers [G, K] near ``totals[g] * shares[g]`` that add up to the totals.

    The sums are rounded, not the shares. A random ``offset`` [G, 1] in [0, 1) makes the expected numbers exact.
    """
    totals = np.asarray(totals, dtype=np.int64)[:, None]
    edges = np.floor(np.cumsum(shares, axis=1)[:, :-1] * totals + offset).astype(np.int64)
    return np.diff(np.clip(edges, 0, totals), prepend=0, append=totals, axis=1)


def evenly(totals: np.ndarray, clients: int, rng: np.random.Generator) -> np.ndarray:
    """Each category in turn to one client after the other: sizes differ by one at most, and so does each category."""
    ends = np.cumsum(totals)[:, None]
    turn = rng.permutation(clients)[None, :]
    # Of the first x turns, client j of K has had ceil((x - j) / K).
    return (ends - turn + clients - 1) // clients - (ends - totals[:, None] - turn + clients - 1) // clients


def by_label(totals: np.ndarray, clients: int, alpha: float, rng: np.random.Generator) -> np.ndarray:
    """Label-wise Dirichlet: each category is cut by its own shares (Yurochkin et al. 2019)."""
    return cut(totals, draw_shares(rng, alpha, np.ones(clients), len(totals)))


def by_label_balanced(totals: np.ndarray, clients: int, alpha: float, rng: np.random.Generator) -> np.ndarray:
    """The same, but a client that has n/K images gets no share of the next category.

    Where no share is left (0/0 in published versions) the smallest clients take the category.
    """
    plan = np.zeros((len(totals), clients), dtype=np.int64)
    for g, shares in enumerate(draw_shares(rng, alpha, np.ones(clients), len(totals))):
        sizes = plan.sum(axis=0)
        left = np.where(sizes * clients < totals.sum(), shares, 0)
        if left.sum() == 0:
            left = (sizes == sizes.min()).astype(np.float64)
        plan[g] = cut(totals[g : g + 1], left[None] / left.sum())[0]
    return plan


def by_client(totals: np.ndarray, sizes: np.ndarray, mixtures: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Client-wise: client k draws ``sizes[k]`` images by its mixture, without replacement (Hsu et al. 2019).

    A category that is used up is masked and the mixture renormalised; where nothing of the mixture is left, what
    remains is drawn in its own proportions. Clients draw in random order, so that it is not always the last ones
    that get what is left.

    Args:
        totals: [G].
        sizes: [K], adding up to ``totals.sum()``.
        mixtures: [K, G], rows that add up to 1.
        rng: Source of all draws.
    """
    assert sizes.sum() == totals.sum()
    left = np.array(totals, dtype=np.int64)
    plan = np.zeros((len(totals), len(sizes)), dtype=np.int64)
    for k in rng.permutation(len(sizes)):
        wanted = int(sizes[k])
        while wanted:  # each pass ends the client or uses up a category
            mixture = np.where(left > 0, mixtures[k], 0)
            # A mass below the smallest normal number has no exact shares.
            weights = mixture if mixture.sum() > np.finfo(np.float64).tiny else left.astype(np.float64)
            taken = np.minimum(rng.multinomial(wanted, weights / weights.sum()), left)
            plan[:, k] += taken
            left -= taken
            wanted -= int(taken.sum())
    return plan


def by_shards(totals: np.ndarray, clients: int, per_client: int, rng: np.random.Generator) -> np.ndarray:
    """Sorted by category, cut into K * s runs that differ by one image at most, s runs per client (FedAvg).

    A run may straddle categories. No image is left over.
    """
    runs = clients * per_client
    edges, ends = np.arange(runs + 1) * int(totals.sum()) // runs, np.cumsum(totals)
    first, last = np.maximum(edges[:-1, None], ends - totals), np.minimum(edges[1:, None], ends)
    plan = np.zeros((clients, len(totals)), dtype=np.int64)
    np.add.at(plan, rng.permutation(runs) % clients, np.clip(last - first, 0, None))
    return plan.T


def by_classes(totals: np.ndarray, clients: int, classes: int, rng: np.random.Generator) -> np.ndarray:
    """Client i holds category i mod G and ``classes - 1`` others at random; owners share a category evenly.

    A category that nobody chose goes to the client that is smallest then, so no image is lost.
    """
    held = np.flatnonzero(totals)
    order = rng.random((clients, len(held)))
    order[np.arange(clients), np.arange(clients) % len(held)] = -1
    chosen = np.argsort(order, axis=1).argsort(axis=1) < classes
    plan = np.zeros((len(totals), clients), dtype=np.int64)
    owned = chosen.any(axis=0)
    shares = chosen.T[owned] / chosen.sum(axis=0)[owned, None]
    plan[held[owned]] = cut(totals[held[owned]], shares)
    for g in held[~owned]:
        plan[g, plan.sum(axis=0).argmin()] = totals[g]
    return plan


def sizes_by_quantity(n: int, clients: int, settings: QuantitySettings, rng: np.random.Generator) -> np.ndarray:
    """Uneven sizes, int64 [K], adding up to n."""
    if settings.kind == "dirichlet":
        shares = draw_shares(rng, settings.alpha, np.ones(clients), 1)
    else:
        shares = _normalised(rng.normal(0, settings.sigma, (1, clients)))
    return cut(np.array([n]), shares)[0]


def dominant_mixtures(totals: np.ndarray, types: int) -> np.ndarray:
    """FedMatch's mixtures, [types, G]: one category 0.5, its two neighbours 0.15 each, the others share 0.2."""
    held = totals > 0
    count = int(held.sum())
    mixtures = np.full((types, count), 0.2 / max(count - 3, 1))
    rows = np.arange(types)
    for place, weight in ((-1, 0.15), (1, 0.15), (0, 0.5)):  # the middle last: with few categories they coincide
        mixtures[rows, (rows + place) % count] = weight
    return _spread(mixtures / mixtures.sum(axis=1, keepdims=True), held)


def _normalised(logs: np.ndarray) -> np.ndarray:
    weights = np.exp(logs - logs.max(axis=1, keepdims=True))
    return weights / weights.sum(axis=1, keepdims=True)


def _spread(values: np.ndarray, held: np.ndarray) -> np.ndarray:
    out = np.zeros((len(values), len(held)))
    out[:, held] = values
    return out
