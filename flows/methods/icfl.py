"""ICFL, iterative clustered federated learning: a reconstruction from its abstract (docs/algorithms/icfl.md)."""

from typing import TYPE_CHECKING, Literal

from pydantic import Field, model_validator

from flows.methods.clusters import average_clusters
from models.settings.section import Section
from tasks.client.payload import Payload
from tasks.core.round_state import RoundState, cluster_model, received_model, upload_model
from tasks.server.personal.icfl import recluster

if TYPE_CHECKING:
    from flows.federation.federation import Federation

DESCRIPTION = "ICFL: clients join clusters, which split and merge by connectivity (reconstruction from its abstract)"
ACCEPTS_AGGREGATOR = False


class Settings(Section):
    """When clients join a cluster, and when clusters split and merge; connectivity is a mean cosine of changes."""

    variant: Literal["two_step", "one_threshold"] = Field(
        "two_step",
        description="two_step: new clients join, then clusters split and merge; one_threshold: all clients are "
        "clustered anew in every round, by average linkage down to theta_join.",
    )
    theta_join: float = Field(0.2, ge=-1, le=1, description="A client joins a cluster from this connectivity on.")
    theta_split: float = Field(0.1, ge=-1, le=1, description="A cluster splits below this connectivity.")
    theta_merge: float = Field(0.2, ge=-1, le=1, description="Clusters merge from this connectivity on.")
    layers: Literal["all", "head"] = Field(
        "all", description="Compared parameters: all, or those of the network's head only."
    )
    warmup: int = Field(1, ge=0, description="Rounds in which all clients are one cluster.")

    @model_validator(mode="after")
    def _clusters_do_not_swing(self) -> "Settings":
        if self.theta_split >= self.theta_merge and self.variant == "two_step":
            raise ValueError(
                f"theta_split must be below theta_merge, or halves merge again; found {self.theta_split:g} and "
                f"{self.theta_merge:g}"
            )
        return self


def run_round(fed: "Federation", state: RoundState) -> RoundState:
    """Train from the clusters' models, new clients from the mean; cluster again; average within clusters."""
    models = state.cluster_models or [state.global_model]
    clients = fed.sample()
    starts = {c: models[state.cluster_of[c]] if c in state.cluster_of else state.global_model for c in clients}
    updates = fed.train(clients, {c: Payload.of(start) for c, start in starts.items()}, stage=1, name="local training")
    for update in updates:
        state.models[upload_model(update.client)] = update.model
        state.models[received_model(update.client)] = fed.as_sent(starts[update.client])
    cluster_of = state.cluster_of | {update.client: 0 for update in updates}
    origins: list[int | None] = [0]
    if fed.number > fed.method.warmup:
        cluster_of, origins = clusters_of(fed, state)
    averaged = average_clusters(fed, updates, cluster_of)
    models = [averaged.get(cluster_model(i)) or models[old or 0] for i, old in enumerate(origins)]
    mean = fed.average(updates, name="average over clusters")
    state.set_clusters(cluster_of, models)
    state.own = {client: cluster_model(index) for client, index in cluster_of.items()}
    return state.with_global(mean)


def clusters_of(fed: "Federation", state: RoundState) -> tuple[dict[str, int], list[int | None]]:
    """Return the clusters of all clients that have ever reported, and the former cluster of each cluster."""
    own, known = fed.method, [client for client in sorted(fed.clients) if upload_model(client) in state.models]
    last = {client: (state.models[upload_model(client)], state.models[received_model(client)]) for client in known}
    rule = (own.variant, own.layers, (own.theta_join, own.theta_split, own.theta_merge))
    return fed.server_task(recluster, last, state.cluster_of, *rule, name="cluster clients", clients=len(known))
