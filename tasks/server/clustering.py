"""FMMAN's stage 2: clients whose models changed alike form a cluster (eq 13; docs/algorithms/fmman.md)."""

import hashlib
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from models.errors import UserError
from tasks.core.records import ModelRef
from tasks.core.store import Store

if TYPE_CHECKING:
    from tasks.core.context import RunContext

STATISTICS = (".running_mean", ".running_var")  # of BatchNorm: not parameters


def parameter_change(store: Store, ref: ModelRef, start: ModelRef, prefix: str) -> np.ndarray:
    """Return one model's chosen parameters minus the start model's, flattened in name order, float64 [P].

    Raises:
        UserError: If no tensor's name begins with ``prefix``.
    """
    with store.open_state(ref) as reader, store.open_state(start) as sent:
        names = sorted(
            name
            for name in reader.keys()  # noqa: SIM118 - no mapping
            if name.startswith(prefix) and not name.endswith(STATISTICS)
        )
        if not names:
            raise UserError(
                "no parameter to cluster on",
                where="the parameters that clients are compared by",
                expected=f"a prefix of one of {sorted({n.rsplit('.', 1)[0] for n in reader.keys()})[:12]} ...",  # noqa: SIM118
                found=prefix,
            )
        changes = ((reader.get_tensor(name), sent.get_tensor(name)) for name in names)
        parts = [(a.double() - b.double()).reshape(-1).numpy() for a, b in changes if a.is_floating_point()]
    return np.concatenate(parts)


def cluster_rows(vectors: np.ndarray, k: int, seed: int) -> list[int]:
    """Return the k-means cluster of each row, numbered by smallest member.

    k is limited to the number of distinct rows and empty clusters are dropped, so the numbers are 0..K'-1 with
    K' <= k. Permuting the rows permutes only the numbers.

    Args:
        vectors: [N, P].
        k: Requested number of clusters.
        seed: scikit-learn's random_state, 0 <= seed < 2^32.

    Returns:
        Cluster of each row.
    """
    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning

    keys = [hashlib.sha256(row.tobytes()).digest() for row in vectors]
    wanted = min(k, len(vectors), len(set(keys)))
    if wanted == 1:
        return [0] * len(vectors)
    # k-means++ draws by row position: a fixed order makes the clusters independent of the clients' order.
    order = sorted(range(len(keys)), key=keys.__getitem__)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        labels_sorted = KMeans(n_clusters=wanted, n_init=10, random_state=seed).fit_predict(vectors[order])
    labels = np.empty(len(vectors), dtype=int)
    labels[order] = labels_sorted
    return renumber(labels.tolist())


def renumber(labels: Sequence[int]) -> list[int]:
    """Return cluster numbers in order of the smallest member, without gaps: [7, 2, 7] -> [0, 1, 0]."""
    numbers: dict[int, int] = {}
    return [numbers.setdefault(label, len(numbers)) for label in labels]


def random_clusters(count: int, k: int, rng: np.random.Generator) -> list[int]:
    """Return random clusters of nearly equal size: the ablation without k-means that keeps the second training."""
    return renumber((rng.permutation(count) % min(k, count)).tolist())


def cluster_models(
    context: "RunContext", refs: Sequence[ModelRef], start: ModelRef, prefix: str, k: int, seed: int
) -> list[int]:
    """Return the clusters of the uploaded models by k-means on the parameters under ``prefix``.

    Args:
        context: The run.
        refs: Uploaded weights in client-id order.
        start: The model they started from.
        prefix: First part of the parameter names to cluster on (the paper: the first transformer layer).
        k: Number of prototypes K.
        seed: For scikit-learn, any non-negative integer.

    Returns:
        Cluster of each model, 0..K'-1.
    """
    store = context.open_store()
    return cluster_rows(np.stack([parameter_change(store, ref, start, prefix) for ref in refs]), k, seed % 2**32)
