"""FMMAN's settings on the server's side, and which runs they fit; docs/algorithms/fmman.md."""

from typing import Literal

from pydantic import Field

from flows.methods.facts import RunFacts
from models.registry import NETWORKS
from models.settings.section import Section


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
    """Require parameters to cluster on, at least as many participants as clusters, and known starts of trainings.

    Raises:
        ValueError: If the network names no parameters for it and none are set, too few clients take part, or the server
            transforms updates whose start only the client knows.
    """
    s: Settings = facts.method
    network = NETWORKS[facts.model.name]
    if s.clustering == "kmeans" and s.cluster_on is None and network.cluster_prefix is None:
        raise ValueError(
            f"network {facts.model.name} names no layer to cluster clients on: set method.fmman.cluster_on to a "
            "prefix of its parameters' names, for instance backbone.layer4 of resnet18, or method.name to fedavg"
        )
    if s.clustering != "none" and s.stage3_start == "best_cluster" and facts.server_transforms:
        raise ValueError(
            "with method.fmman.stage3_start best_cluster only a client knows what its training started from, and "
            f"aggregation.server_transforms ({', '.join(facts.server_transforms)}) measure from there: use "
            "aggregation.client_transforms"
        )
    known = [count for count in (facts.clients, facts.clients_per_round) if count is not None]
    if s.clustering != "none" and known and s.clusters > min(known):
        raise ValueError(f"method.fmman.clusters is {s.clusters}, but only {min(known)} clients take part in a round")
