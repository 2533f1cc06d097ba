"""What methods with clusters of clients share."""

from typing import TYPE_CHECKING

from tasks.core.round_state import cluster_model

if TYPE_CHECKING:
    from flows.federation.federation import Federation
    from tasks.core.records import ModelRef, Update


def average_clusters(fed: "Federation", updates: list["Update"], cluster_of: dict[str, int]) -> dict[str, "ModelRef"]:
    """Return the mean of each cluster's updates by the name of its model, weighted by sample count."""
    from tasks.server.aggregation import sample_count_weights  # needs torch

    rows = {}
    for index in sorted({cluster_of[update.client] for update in updates}):
        members = [update for update in updates if cluster_of[update.client] == index]
        weights = sample_count_weights([update.samples for update in members])
        rows[cluster_model(index)] = dict(zip((update.client for update in members), weights, strict=True))
    return fed.mix(updates, rows=rows, name="average within clusters")
