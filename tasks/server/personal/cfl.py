"""CFL's server: when a cluster splits, and how (Sattler et al., TNNLS 2021, algorithm 1; docs/algorithms/cfl.md).

D_k is the change of client k's parameters in a round; G [n, n] holds the products <D_i, D_j>.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from tasks.core.records import ModelRef
from tasks.core.state_schema import parameters_of, read_schema
from tasks.server.state_rules import cached_state, open_states

if TYPE_CHECKING:
    from tasks.core.context import RunContext
    from tasks.core.store import Store

NORM = "largest_norm"


def gram(
    store: "Store", refs: Sequence[ModelRef], starts: ModelRef | Sequence[ModelRef], names: Sequence[str]
) -> np.ndarray:
    """Return G [n, n], float64, over the named parameters; one tensor of all models is in memory at a time.

    Args:
        store: The run's store.
        refs: The clients' models.
        starts: The model that they started from, or that of each.
        names: The parameters that count.
    """
    begun = [starts] * len(refs) if isinstance(starts, ModelRef) else list(starts)
    distinct = list(dict.fromkeys(begun))
    place = [distinct.index(start) for start in begun]
    products = np.zeros((len(refs), len(refs)))
    with open_states(store, [*distinct, *refs]) as opened:
        sent, received = opened[: len(distinct)], opened[len(distinct) :]
        for name in names:
            first = [each.get_tensor(name).double() for each in sent]
            changes = [own.get_tensor(name).double() - first[at] for own, at in zip(received, place, strict=True)]
            rows = np.stack([change.reshape(-1).numpy() for change in changes])
            products += rows @ rows.T
    return products


def mean_norm(products: np.ndarray) -> float:
    """Return ||mean_k D_k||: the root of the sum of G, divided by n."""
    return float(np.sqrt(max(0.0, products.sum())) / len(products))


def norms(products: np.ndarray) -> np.ndarray:
    """Return ||D_k|| [n]."""
    found: np.ndarray = np.sqrt(np.diag(products))
    return found


def must_split(products: np.ndarray, eps1: float, eps2: float, first: float | None = None) -> bool:
    """Return whether ||mean_k D_k|| < eps1 and max_k ||D_k|| > eps2 (eqs 4 and 5 of the paper's section on stopping).

    Args:
        products: G [n, n].
        eps1: The first bound; with ``first`` a share of it.
        eps2: The second bound; with ``first`` a share of the mean of ||D_k||.
        first: The largest norm of round 1; ``None``: the bounds are absolute.
    """
    lengths = norms(products)
    if first is not None:
        eps1, eps2 = eps1 * first, eps2 * float(lengths.mean())
    return mean_norm(products) < eps1 and float(lengths.max()) > eps2


def cosines(products: np.ndarray) -> np.ndarray:
    """Return cos(D_i, D_j) [n, n] from G; 1 on the diagonal, 0 with a client whose model did not change."""
    lengths = norms(products)
    scale = np.where(lengths > 0, lengths, 1.0)
    found: np.ndarray = np.clip(products / np.outer(scale, scale), -1.0, 1.0)
    np.fill_diagonal(found, 1.0)
    return found


def halves(similarity: np.ndarray) -> list[int]:
    """Return two groups, 0 and 1, by complete-linkage agglomeration on 1 - similarity [n, n]; the first is in 0."""
    from sklearn.cluster import AgglomerativeClustering

    rule = AgglomerativeClustering(n_clusters=2, metric="precomputed", linkage="complete")
    labels = rule.fit_predict(1.0 - similarity)
    return [int(label != labels[0]) for label in labels]


def bipartition(products: np.ndarray) -> list[int]:
    """Return two groups, 0 and 1, by complete-linkage agglomeration on -cos(D_i, D_j); the first client is in group 0.

    A client whose model did not change has cosine 0 with all.
    """
    return halves(cosines(products))


def split_cluster(
    context: "RunContext", refs: Sequence[ModelRef], start: ModelRef, criteria: tuple[float, float, ModelRef | None]
) -> list[int] | None:
    """Return the half, 0 or 1, of each member of a cluster, ``None`` if it stays as it is.

    Args:
        context: The run.
        refs: The members' models, in client-id order.
        start: The model that they started from.
        criteria: eps1, eps2, and what ``largest_change`` stored, if they are relative.
    """
    store = context.open_store()
    eps1, eps2, first = criteria
    products = gram(store, refs, start, parameters_of(read_schema(context)))
    reference = float(store.get_state(first)[NORM]) if first is not None else None
    return bipartition(products) if must_split(products, eps1, eps2, reference) else None


def largest_change(context: "RunContext", refs: Sequence[ModelRef], start: ModelRef) -> ModelRef:
    """Store the largest ||D_k|| of these models."""
    import torch

    def make(store: "Store") -> dict[str, torch.Tensor]:
        products = gram(store, refs, start, parameters_of(read_schema(context)))
        return {NORM: torch.tensor(norms(products).max(), dtype=torch.float64)}

    return cached_state(context, "largest-change", [start.digest, *(ref.digest for ref in refs)], make)
