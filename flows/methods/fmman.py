"""FMMAN's cycle of four stages (J. Low Power Electron. Appl. 2025, 15(3), 46, section 3.3; specification 2.1)."""

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from flows.methods import RunFacts
from models.base_settings import Section
from models.registry import NETWORKS
from tasks.core.records import ModelRef, Update

if TYPE_CHECKING:
    from flows.federation.federation import Federation

TITLE = "FMMAN: train, cluster, refine with prototypes, average by loss (J. Low Power Electron. Appl. 2025, 15(3), 46)"


class Settings(Section):
    """The server's side of FMMAN; the loss is set under ``objective.fmman``, the network under ``model.fmman``."""

    clusters: int = Field(3, ge=1, description="Number of prototypes K (paper: 3).")
    clustering: Literal["kmeans", "random", "none"] = Field(
        "kmeans", description="How groups form. `none` skips stages 2 and 3, `random` draws lots."
    )
    cluster_on: str | None = Field(
        None, description="Prefix of the parameters to cluster on; null: the network's own (first transformer layer)."
    )
    stage3_start: Literal["own", "local", "best"] = Field(
        "own", description="Stage 3 starts from the own prototype, the stage-1 model, or the best prototype."
    )
    final_agg: Literal["loss_size", "size", "loss"] = Field("loss_size", description="Weights of eq 15.")
    stage1_rounds: int = Field(1, ge=1, description="Trainings in stage 1, averaged by size in between.")
    stage3_rounds: int = Field(1, ge=1, description="Trainings in stage 3, averaged in each group in between.")


def check(facts: RunFacts) -> None:
    """The server must know what to cluster clients on, and cannot form more groups than it has clients.

    Raises:
        ValueError: If the network names no parameters for it and none are set, or too few clients take part.
    """
    own: Settings = facts.method
    network = NETWORKS[facts.model.name]
    if own.clustering == "kmeans" and own.cluster_on is None and network.cluster_prefix is None:
        raise ValueError(
            f"network {facts.model.name} names no layer to cluster clients on: set method.fmman.cluster_on to a "
            "prefix of its parameters' names, for instance backbone.layer4 of resnet18, or method.name to fedavg"
        )
    known = [count for count in (facts.clients, facts.clients_per_round) if count is not None]
    if own.clustering != "none" and known and own.clusters > min(known):
        raise ValueError(f"method.fmman.clusters is {own.clusters}, but only {min(known)} clients take part in a round")


def run_round(fed: "Federation", start: ModelRef) -> ModelRef:
    """One cycle; the same clients take part in both trainings."""
    s: Settings = fed.method
    clients = fed.sample()

    # Stage 1: every client trains from the global model, of which it holds K equal multiplicity as prototypes.
    k = 1 if s.clustering == "none" else s.clusters
    for repeat in range(s.stage1_rounds):
        name = "stage 1 local training"
        updates = fed.train(clients, start, references=[start] * k, stage=1 + 10 * repeat, name=name)
        if repeat + 1 < s.stage1_rounds:
            start = fed.average(updates, name="stage 1 average by size")
    if s.clustering == "none":
        return fed.average_by_loss(updates, s.final_agg, name="stage 4 average by loss")

    # Stage 2: cluster what came back (eq 13), average each group by size (eq 14).
    groups = fed.cluster(updates, start, k, s.clustering, s.cluster_on, name="stage 2 cluster models")
    prototypes = average_groups(fed, updates, groups, [], name="stage 2 average group")

    # Stage 3: every client refines its own group's prototype under the guidance of all of them.
    for repeat in range(s.stage3_rounds):
        starts = {u.client: u.model if s.stage3_start == "local" else prototypes[groups[u.client]] for u in updates}
        updates = fed.train(
            sorted(starts),
            starts,
            references=prototypes,
            own=groups,
            start_from_best=s.stage3_start == "best",
            already_at_client=s.stage3_start == "local",
            stage=3 + 10 * repeat,
            name="stage 3 refine with prototypes",
        )
        if repeat + 1 < s.stage3_rounds:
            prototypes = average_groups(fed, updates, groups, prototypes, name="stage 3 average group")
    fed.keep(groups, prototypes)

    # Stage 4: one global model, clients weighted by loss and size (eq 15, normalised).
    return fed.average_by_loss(updates, s.final_agg, name="stage 4 average by loss")


def average_groups(
    fed: "Federation", updates: list[Update], groups: dict[str, int], old: list[ModelRef], name: str
) -> list[ModelRef]:
    """Eq 14: one prototype per group, its clients weighted by size. A group nobody answered for keeps its old one."""
    prototypes = []
    for number in range(max(groups.values()) + 1):
        members = [u for u in updates if groups[u.client] == number]
        prototypes.append(fed.average(members, name=f"{name} {number}") if members else old[number])
    return prototypes
