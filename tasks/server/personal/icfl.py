"""ICFL's server: clients join clusters, clusters split and merge by their connectivity (docs/algorithms/icfl.md).

S [n, n] holds the cosines between the clients' changes when they last reported. The connectivity of a client and a
cluster, or of two clusters, is the mean of S over their pairs; that of one cluster is the mean over its members' pairs.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np

from tasks.core.records import ModelRef
from tasks.core.state_schema import parameters_of, read_schema
from tasks.server.personal.cfl import cosines, gram, halves

if TYPE_CHECKING:
    from tasks.core.context import RunContext

Clusters = list[list[int]]  # rows of S


def cohesion(similarity: np.ndarray, members: Sequence[int]) -> float:
    """Return the mean of S over pairs of different members; 1 for a single one."""
    n = len(members)
    if n < 2:
        return 1.0
    own = similarity[np.ix_(members, members)]
    return float((own.sum() - np.trace(own)) / (n * (n - 1)))


def connectivity(similarity: np.ndarray, ones: Sequence[int], others: Sequence[int]) -> float:
    """Return the mean of S over all pairs of one of ``ones`` and one of ``others``."""
    return float(similarity[np.ix_(ones, others)].mean())


def join(similarity: np.ndarray, clusters: Clusters, arrived: Sequence[int], theta: float) -> Clusters:
    """Place new clients one by one: in the cluster that they are most connected with, or in one of their own.

    Args:
        similarity: S [n, n].
        clusters: The members of each cluster; a cluster may be empty.
        arrived: The new clients, in the order in which they are placed.
        theta: Least connectivity with a cluster that is joined.
    """
    grown = [list(members) for members in clusters]
    for client in arrived:
        found = [connectivity(similarity, [client], members) if members else -np.inf for members in grown]
        best = int(np.argmax(found)) if found else -1
        if best >= 0 and found[best] >= theta:
            grown[best].append(client)
        else:
            grown.append([client])
    return grown


def split(similarity: np.ndarray, clusters: Clusters, theta: float) -> Clusters:
    """Split each cluster whose connectivity is below theta in two, if both halves are better connected or single.

    The half with the first member keeps the cluster's place; the other one is appended.
    """
    kept: Clusters = []
    added: Clusters = []
    for members in clusters:
        own = cohesion(similarity, members)
        if len(members) > 1 and own < theta:
            labels = halves(similarity[np.ix_(members, members)])
            parts = [[m for m, label in zip(members, labels, strict=True) if label == half] for half in (0, 1)]
            if all(len(part) == 1 or cohesion(similarity, part) > own for part in parts):
                kept.append(parts[0])
                added.append(parts[1])
                continue
        kept.append(list(members))
    return kept + added


def merge(similarity: np.ndarray, clusters: Clusters, theta: float) -> Clusters:
    """Merge the two best connected clusters, as long as their connectivity is at least theta.

    The later one of the two becomes empty, so that places stay.
    """
    merged = [list(members) for members in clusters]
    while True:
        filled = [place for place, members in enumerate(merged) if members]
        pairs = [(i, j) for n, i in enumerate(filled) for j in filled[n + 1 :]]
        found = [connectivity(similarity, merged[i], merged[j]) for i, j in pairs]
        if not found or max(found) < theta:
            return merged
        i, j = pairs[int(np.argmax(found))]
        merged[i], merged[j] = sorted(merged[i] + merged[j]), []


def agglomerate(similarity: np.ndarray, theta: float) -> Clusters:
    """Return the clusters of average-linkage agglomeration from single clients, as long as connectivity is above theta.

    They are in the order of their first members.
    """
    from sklearn.cluster import AgglomerativeClustering

    if len(similarity) == 1:
        return [[0]]
    rule = AgglomerativeClustering(
        n_clusters=None, distance_threshold=1.0 - theta, metric="precomputed", linkage="average"
    )
    labels = rule.fit_predict(1.0 - similarity)
    order = list(dict.fromkeys(labels.tolist()))
    return [np.flatnonzero(labels == label).tolist() for label in order]


def origins(clusters: Clusters, before: Mapping[int, int]) -> list[int | None]:
    """Return for each cluster the former cluster of most of its members, the first of equals; ``None``: of nobody.

    Args:
        clusters: Their members.
        before: Row of S -> former cluster, of the clients that had one.
    """
    found: list[int | None] = []
    for members in clusters:
        own = [before[m] for m in members if m in before]
        found.append(min(set(own), key=lambda old: (-own.count(old), old)) if own else None)
    return found


def recluster(
    context: "RunContext",
    last: Mapping[str, tuple[ModelRef, ModelRef]],
    cluster_of: Mapping[str, int],
    variant: Literal["two_step", "one_threshold"],
    layers: Literal["all", "head"],
    thetas: tuple[float, float, float],
) -> tuple[dict[str, int], list[int | None]]:
    """Return the cluster of each client that has reported, and the former cluster that each one comes from.

    Args:
        context: The run.
        last: Client -> the model that it last sent, and the one that it was trained from; in client-id order.
        cluster_of: Client -> its cluster, of clients that have one.
        variant: ``two_step``: join, split, merge; ``one_threshold``: ``agglomerate`` anew.
        layers: ``head``: only the parameters outside the image encoder are compared.
        thetas: For joining, splitting and merging; ``one_threshold`` has the first alone.
    """
    from models.weights.parts import PREFIX

    store, clients = context.open_store(), list(last)
    names = parameters_of(read_schema(context))
    chosen = [name for name in names if layers == "all" or not name.startswith(PREFIX)]
    refs, starts = zip(*last.values(), strict=True)
    similarity = cosines(gram(store, refs, starts, chosen))
    before = {row: cluster_of[client] for row, client in enumerate(clients) if client in cluster_of}
    if variant == "one_threshold":
        clusters = agglomerate(similarity, thetas[0])
    else:
        count = max(before.values(), default=-1) + 1
        known = [[row for row, index in before.items() if index == cluster] for cluster in range(count)]
        clusters = join(similarity, known, [row for row in range(len(clients)) if row not in before], thetas[0])
        clusters = merge(similarity, split(similarity, clusters, thetas[1]), thetas[2])
    clusters = [members for members in clusters if members]
    found = {clients[row]: index for index, members in enumerate(clusters) for row in members}
    return found, origins(clusters, before)
