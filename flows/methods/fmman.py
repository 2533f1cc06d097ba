"""FMMAN's cycle of four stages (J. Low Power Electron. Appl. 2025, 15(3), 46); docs/algorithms/fmman.md."""

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from flows.methods import RunFacts
from models.base_settings import Section
from models.registry import NETWORKS
from tasks.core.records import ModelRef, Update

if TYPE_CHECKING:
    from flows.federation.federation import Federation

DESCRIPTION = "FMMAN: train, cluster, refine, loss-weighted average (J. Low Power Electron. Appl. 2025, 15(3), 46)"


class Settings(Section):
    """The server's side of FMMAN; the loss is set under ``objective.fmman``, the network under ``model.fmman``."""

    clusters: int = Field(3, ge=1, description="Number of prototypes K (paper: 3).")
    clustering: Literal["kmeans", "random", "none"] = Field(
        "kmeans", description="How clusters form: k-means, at random, or none, which skips stages 2 and 3."
    )
    cluster_on: str | None = Field(
        None, description="Prefix of the parameters to cluster on; null: the network's own (first transformer layer)."
    )
    stage3_start: Literal["own_cluster", "local", "best_cluster"] = Field(
        "own_cluster",
        description="Initial weights of stage 3: the assigned cluster's prototype, the client's stage-1 model, or the "
        "prototype with the lowest local loss.",
    )
    final_agg: Literal["loss_size", "size", "loss"] = Field(
        "loss_size", description="Weights of eq 15: loss times sample count, or one of them."
    )
    stage1_rounds: int = Field(1, ge=1, description="Trainings in stage 1, with a weighted average in between.")
    stage3_rounds: int = Field(1, ge=1, description="Trainings in stage 3, averaged in each cluster in between.")


def check(facts: RunFacts) -> None:
    """Require parameters to cluster on, and at least as many participants as clusters.

    Raises:
        ValueError: If the network names no parameters for it and none are set, or too few clients take part.
    """
    s: Settings = facts.method
    network = NETWORKS[facts.model.name]
    if s.clustering == "kmeans" and s.cluster_on is None and network.cluster_prefix is None:
        raise ValueError(
            f"network {facts.model.name} names no layer to cluster clients on: set method.fmman.cluster_on to a "
            "prefix of its parameters' names, for instance backbone.layer4 of resnet18, or method.name to fedavg"
        )
    known = [count for count in (facts.clients, facts.clients_per_round) if count is not None]
    if s.clustering != "none" and known and s.clusters > min(known):
        raise ValueError(f"method.fmman.clusters is {s.clusters}, but only {min(known)} clients take part in a round")


def run_round(fed: "Federation", start: ModelRef) -> ModelRef:
    """Do one cycle of four stages; the same clients take part in both trainings."""
    s: Settings = fed.method
    clients = fed.sample()

    # Stage 1: every client trains from the global model, of which it has K copies as prototypes.
    k = 1 if s.clustering == "none" else s.clusters
    for repeat in range(s.stage1_rounds):
        name = "stage 1 local training"
        updates = fed.train(clients, start, references=[start] * k, stage=1 + 10 * repeat, name=name)
        if repeat + 1 < s.stage1_rounds:
            start = fed.average(updates, name="stage 1 weighted average")
    if s.clustering == "none":
        return fed.average_loss_weighted(updates, s.final_agg, name="stage 4 loss-weighted average")

    # Stage 2: cluster the updates (eq 13), average each cluster weighted by sample count (eq 14).
    cluster_of = fed.cluster(updates, start, k, s.clustering, s.cluster_on, name="stage 2 cluster models")
    prototypes = average_clusters(fed, updates, cluster_of, [], name="stage 2 average cluster")

    # Stage 3: every client refines its cluster's prototype, with all prototypes as references.
    for repeat in range(s.stage3_rounds):
        starts = {u.client: u.model if s.stage3_start == "local" else prototypes[cluster_of[u.client]] for u in updates}
        updates = fed.train(
            sorted(starts),
            starts,
            references=prototypes,
            cluster_of=cluster_of,
            init="best_cluster" if s.stage3_start == "best_cluster" else "start",
            already_at_client=s.stage3_start == "local",
            stage=3 + 10 * repeat,
            name="stage 3 refine with prototypes",
        )
        if repeat + 1 < s.stage3_rounds:
            prototypes = average_clusters(fed, updates, cluster_of, prototypes, name="stage 3 average cluster")
    fed.record_clusters(cluster_of, prototypes)

    # Stage 4: one global model, clients weighted by loss and sample count (eq 15, normalised).
    return fed.average_loss_weighted(updates, s.final_agg, name="stage 4 loss-weighted average")


def average_clusters(
    fed: "Federation", updates: list[Update], cluster_of: dict[str, int], old: list[ModelRef], name: str
) -> list[ModelRef]:
    """Return eq 14's prototype of every cluster; a cluster without updates keeps its old one."""
    prototypes = []
    for number in range(max(cluster_of.values()) + 1):
        members = [u for u in updates if cluster_of[u.client] == number]
        prototypes.append(fed.average(members, name=f"{name} {number}") if members else old[number])
    return prototypes
