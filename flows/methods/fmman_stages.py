"""Steps of FMMAN's stages 2 to 4: clusters, prototypes, the loss-weighted average; docs/algorithms/fmman.md."""

from typing import TYPE_CHECKING

from flows.methods.fmman_settings import Settings
from models.registry import NETWORKS
from tasks.core.records import ModelRef, Update

if TYPE_CHECKING:
    from flows.federation.federation import Federation


def clusters(fed: "Federation", updates: list[Update], start: ModelRef) -> dict[str, int]:
    """Return each client's cluster: by how its model changed in stage 1 (eq 13), or at random."""
    s: Settings = fed.method
    if s.clustering == "kmeans":
        prefix = s.cluster_on or NETWORKS[fed.context.model.name].cluster_prefix
        assert prefix is not None, "check() refuses networks without one"
        return fed.cluster(updates, start, s.clusters, prefix, name="stage 2 cluster models")
    from tasks.server.clustering import random_clusters

    # The purpose is part of every seed: never changed.
    numbers = random_clusters(len(updates), s.clusters, fed.generator("random groups"))
    return {update.client: number for update, number in zip(updates, numbers, strict=True)}


def average_clusters(
    fed: "Federation", updates: list[Update], cluster_of: dict[str, int], old: list[ModelRef], name: str
) -> list[ModelRef]:
    """Return eq 14's prototype of every cluster; a cluster without updates keeps its old one."""
    members = {k: [u for u in updates if cluster_of[u.client] == k] for k in range(max(cluster_of.values()) + 1)}
    return [fed.average(own, name=f"{name} {k}") if own else old[k] for k, own in members.items()]


def loss_weighted(fed: "Federation", updates: list[Update], start: ModelRef, name: str) -> ModelRef:
    """Average by eq 15, normalised: loss times sample count. Fall back to sample counts, with a note."""
    from tasks.server.aggregation import loss_weights

    losses = [update.mean("classification") for update in updates]
    weights, note = loss_weights(losses, [update.samples for update in updates], fed.method.final_agg)
    if note:
        fed.note(f"{name}: {note}")
    return fed.aggregate(updates, start, weights=weights, name=name)
