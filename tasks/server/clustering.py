"""FMMAN's stage 2: clients whose models changed alike form a group (eq 13, specification 2.2)."""

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

STATISTICS = (".running_mean", ".running_var")  # BatchNorm's: no parameters


def vector_of(store: Store, ref: ModelRef, anchor: ModelRef, prefix: str) -> np.ndarray:
    """The chosen parameters of one model minus the start model's, flattened in name order, float64 [P].

    Raises:
        UserError: If no tensor's name begins with ``prefix``.
    """
    with store.open_state(ref) as reader, store.open_state(anchor) as start:
        names = sorted(
            name
            for name in reader.keys()  # noqa: SIM118 - no mapping
            if name.startswith(prefix) and not name.endswith(STATISTICS)
        )
        if not names:
            raise UserError(
                "no parameter to cluster on",
                where="method.fmman.cluster_on",
                expected=f"a prefix of one of {sorted({n.rsplit('.', 1)[0] for n in reader.keys()})[:12]} ...",  # noqa: SIM118
                found=prefix,
            )
        changes = ((reader.get_tensor(name), start.get_tensor(name)) for name in names)
        parts = [(a.double() - b.double()).reshape(-1).numpy() for a, b in changes if a.is_floating_point()]
    return np.concatenate(parts)


def group_rows(vectors: np.ndarray, k: int, seed: int) -> list[int]:
    """k-means groups of the rows, renumbered by their smallest member.

    k is cut to the number of rows and of distinct rows; groups that stay empty are dropped, so the numbers are
    0..K'-1 with K' <= k. Permuting the rows permutes nothing but the numbers.

    Args:
        vectors: [N, P].
        k: Wanted number of groups.
        seed: scikit-learn's random_state, 0 <= seed < 2^32.

    Returns:
        Group of each row.
    """
    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning

    keys = [hashlib.sha256(row.tobytes()).digest() for row in vectors]
    wanted = min(k, len(vectors), len(set(keys)))
    if wanted == 1:
        return [0] * len(vectors)
    # k-means++ draws by row position: a fixed order makes the groups independent of how clients are numbered.
    order = sorted(range(len(keys)), key=keys.__getitem__)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        labels_sorted = KMeans(n_clusters=wanted, n_init=10, random_state=seed).fit_predict(vectors[order])
    labels = np.empty(len(vectors), dtype=int)
    labels[order] = labels_sorted
    return renumber(labels.tolist())


def renumber(labels: Sequence[int]) -> list[int]:
    """Groups in order of their smallest member, without gaps: [7, 2, 7] -> [0, 1, 0]."""
    numbers: dict[int, int] = {}
    return [numbers.setdefault(label, len(numbers)) for label in labels]


def random_groups(count: int, k: int, rng: np.random.Generator) -> list[int]:
    """Groups of nearly equal size by lot: the ablation without k-means that keeps the second training."""
    return renumber((rng.permutation(count) % min(k, count)).tolist())


def cluster_models(
    context: "RunContext", refs: Sequence[ModelRef], anchor: ModelRef, prefix: str, k: int, seed: int
) -> list[int]:
    """Groups of the uploaded models by k-means on the parameters under ``prefix``.

    Args:
        context: The run.
        refs: Uploaded weights in client-id order.
        anchor: The model they started from.
        prefix: First part of the parameter names to cluster on (the paper: the first transformer layer).
        k: Number of prototypes K.
        seed: For scikit-learn, any non-negative integer.

    Returns:
        Group of each model, 0..K'-1.
    """
    store = context.open_store()
    return group_rows(np.stack([vector_of(store, ref, anchor, prefix) for ref in refs]), k, seed % 2**32)
