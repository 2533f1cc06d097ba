"""Heterogeneity of clients (or sites): counts, label distributions and label co-occurrence."""

from typing import Any

import numpy as np


def statistics(
    targets: np.ndarray,
    owners: np.ndarray,
    ids: list[str],
    classes: list[str],
    annotated: np.ndarray | None = None,
    unlabelled: np.ndarray | None = None,
) -> dict[str, Any]:
    """Compute the statistics of a partition, as plain numbers for JSON.

    Args:
        targets: uint8 [n, C], 1 where image i has label c.
        owners: str [n], the client (or site) that holds image i.
        ids: The K clients, each with at least one image.
        classes: The C labels.
        annotated: bool [n], whether the labels of image i are known; all numbers about labels are over these images.
            Default: all.
        unlabelled: bool [n], whether training sees image i without its labels. Default: the images that are not
            annotated.

    Returns:
        ``clients``: for each id its ``images``, those of them that are ``annotated`` and ``unlabelled``; ``negatives``,
        the images without any label; ``labels``, images with each label, and ``prevalence``, their share;
        ``cardinality``, labels per image; ``labels_without_positives``;
        ``effective_classes``, exp of the entropy of the label counts, 0 without any label; ``js_distance`` to all
        images (``js_distances``, images without a label are one more class), ``None`` without an annotated image;
        ``cooccurrence_distance`` to all images
        and ``undefined_pairs``, the number of undefined label pairs (``cooccurrence_distance``).
        ``mean_js_distance``, ``effective_clients``; ``mean_cooccurrence_distance`` over the clients that have one.
        ``cooccurrence``: the phi matrix of all images (``cooccurrence``), rows and columns in the order of
        ``classes``, ``None`` where undefined. If no image has two labels, co-occurrence is undefined and
        all entries about it are ``None``.
    """
    judgeable = np.ones(len(targets), dtype=bool) if annotated is None else annotated
    sizes = np.array([len(part) for part in rows_of(owners, ids)])
    hidden = label_counts((~judgeable if unlabelled is None else unlabelled)[:, None], owners, ids)[:, 0]
    targets, owners = targets[judgeable], owners[judgeable]
    present = np.asarray(targets) != 0
    rows = rows_of(owners, ids)
    counts, judged = label_counts(targets, owners, ids), np.array([len(part) for part in rows])
    negatives = np.array([(~present[part].any(axis=1)).sum() for part in rows])
    js = np.full(len(ids), np.nan)
    if (judged > 0).any():
        js[judged > 0] = js_distances(np.hstack([counts, negatives[:, None]])[judged > 0])
    multi_label = bool((present.sum(axis=1) > 1).any())
    pooled, prevalence = cooccurrence(targets), present.sum(axis=0) / max(len(present), 1)
    clients: dict[str, Any] = {}
    for k, client in enumerate(ids):
        distance: float | None = None
        undefined: int | None = None
        if multi_label:
            distance, undefined = cooccurrence_distance(cooccurrence(targets[rows[k]]), pooled, prevalence)
        clients[client] = _label_statistics(counts[k], int(judged[k]), int(negatives[k]), classes) | {
            "images": int(sizes[k]),
            "annotated": int(judged[k]),
            "unlabelled": int(hidden[k]),
            "js_distance": None if np.isnan(js[k]) else float(js[k]),
            "cooccurrence_distance": distance,
            "undefined_pairs": undefined,
        }
    found = [entry["cooccurrence_distance"] for entry in clients.values()]
    known = [value for value in found if value is not None]
    matrix = [[None if np.isnan(value) else float(value) for value in row] for row in pooled]
    return {
        "clients": clients,
        "mean_js_distance": float(np.nanmean(js)) if (judged > 0).any() else None,
        "effective_clients": effective_clients(sizes),
        "mean_cooccurrence_distance": float(np.mean(known)) if known else None,
        "cooccurrence": matrix if multi_label else None,
    }


def _label_statistics(counts: np.ndarray, images: int, negatives: int, classes: list[str]) -> dict[str, Any]:
    return {
        "images": images,
        "negatives": negatives,
        "labels": dict(zip(classes, counts.tolist(), strict=True)),
        "prevalence": dict(zip(classes, (counts / max(images, 1)).tolist(), strict=True)),
        "cardinality": float(counts.sum() / max(images, 1)),
        "labels_without_positives": [name for name, count in zip(classes, counts, strict=True) if not count],
        "effective_classes": effective_classes(counts),
    }


def rows_of(owners: np.ndarray, ids: list[str]) -> list[np.ndarray]:
    """Return the rows of each client, ascending, in one pass over the owners."""
    order = np.argsort(owners, kind="stable")
    names, starts = np.unique(np.asarray(owners)[order], return_index=True)
    parts = dict(zip(names.tolist(), np.split(order, starts[1:]), strict=False))
    return [parts.get(client, np.array([], dtype=np.int64)) for client in ids]


def label_counts(targets: np.ndarray, owners: np.ndarray, ids: list[str]) -> np.ndarray:
    """Count images per client and label, int64 [K, C].

    Args:
        targets: [N, C], 1 where image n has label c.
        owners: str [N], the client that holds image n.
        ids: The K clients, in the order of the result's rows.
    """
    return np.array([targets[rows].sum(axis=0, dtype=np.int64) for rows in rows_of(owners, ids)])


def js_distances(counts: np.ndarray) -> np.ndarray:
    """Compute each client's Jensen-Shannon distance (base 2) to the pooled distribution, [K] in [0, 1].

    Args:
        counts: [K, C], images of client k in class c; every row has a positive sum. Give images without any label
            their own column.
    """
    from scipy.spatial.distance import jensenshannon

    counts = np.asarray(counts, dtype=np.float64)
    assert (counts.sum(axis=1) > 0).all(), "a client without any count has no distribution"
    pooled = counts.sum(axis=0)
    # For equal distributions rounding can make the divergence -1e-17 and its root NaN.
    with np.errstate(invalid="ignore"):
        return np.array([np.nan_to_num(jensenshannon(row, pooled, base=2)) for row in counts])


def mean_js_distance(counts: np.ndarray) -> float:
    """Average ``js_distances`` over clients."""
    return float(np.mean(js_distances(counts)))


def effective_clients(sizes: np.ndarray) -> float:
    """Compute 1 / sum of squared shares: K for equal sizes, 1 if one client holds everything."""
    shares = np.asarray(sizes, dtype=np.float64) / np.sum(sizes)
    return float(1 / np.sum(shares**2))


def effective_classes(counts: np.ndarray) -> float:
    """Compute exp(-sum p ln p) of the label counts [C]: m for m equally frequent labels, 0 without any label."""
    total = np.sum(counts)
    if not total:
        return 0.0
    shares = np.asarray(counts, dtype=np.float64)[np.asarray(counts) > 0] / total
    return float(np.exp(-np.sum(shares * np.log(shares))))


def cooccurrence(targets: np.ndarray) -> np.ndarray:
    """Compute the phi coefficient of every pair of labels, float64 [C, C] in [-1, 1]: their correlation over images.

    phi_ij = (n n_ij - n_i n_j) / sqrt(n_i (n - n_i) n_j (n - n_j)), with n images, n_i of them with label i and n_ij
    with both. 0 for independent labels; 1 if they only occur together, whatever their prevalence, which is why phi
    and not P(j | i) is compared between clients. NaN where no image or every image has one of the labels.
    """
    present = (np.asarray(targets) != 0).astype(np.float64)
    n, single, both = len(present), present.sum(axis=0), present.T @ present
    variance = single * (n - single)  # times n^2
    with np.errstate(invalid="ignore"):
        phi: np.ndarray = (n * both - np.outer(single, single)) / np.sqrt(np.outer(variance, variance))
    return np.where(np.outer(variance, variance) > 0, phi, np.nan)


def cooccurrence_distance(client: np.ndarray, pooled: np.ndarray, prevalence: np.ndarray) -> tuple[float | None, int]:
    """Compute the distance of a client's co-occurrence to that of all images.

    d = sqrt(sum w_ij (phi_ij of the client - phi_ij of all)^2 / sum w_ij), over the pairs i < j for which both are
    defined, with w_ij = sqrt(p_i (1 - p_i) p_j (1 - p_j)) and p the prevalence among all images: pairs of rare labels,
    whose phi rests on few images, count less. 0 = the same, at most 2. A small client has a
    positive distance by chance alone, see ``distance_by_chance``.

    Args:
        client: ``cooccurrence`` of the client's images, [C, C].
        pooled: ``cooccurrence`` of all images, [C, C].
        prevalence: Share of each label among all images, [C].

    Returns:
        The distance, ``None`` without any defined pair; and the number of undefined pairs out of C (C - 1) / 2.
    """
    upper = np.triu_indices(len(prevalence), k=1)
    std = np.sqrt(prevalence * (1 - prevalence))
    weight, difference = np.outer(std, std)[upper], (client - pooled)[upper]
    defined = ~np.isnan(difference)
    undefined = int((~defined).sum())
    if not defined.any():
        return None, undefined
    return float(np.sqrt(np.average(difference[defined] ** 2, weights=weight[defined]))), undefined


def distance_by_chance(images: int, all_images: int) -> float:
    """Approximate the co-occurrence distance of a random subset of the images: sqrt(1/n_k - 1/n)."""
    return float(np.sqrt(max(0.0, 1 / images - 1 / all_images)))
