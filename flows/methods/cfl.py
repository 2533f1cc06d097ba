"""CFL: clusters that split where clients pull apart (Sattler et al., TNNLS 2021; docs/algorithms/cfl.md)."""

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from flows.methods.facts import RunFacts
from models.settings.section import Section
from tasks.client.payload import Payload
from tasks.core.round_state import RoundState, cluster_model
from tasks.server.personal.cfl import largest_change, split_cluster

if TYPE_CHECKING:
    from flows.federation.federation import Federation
    from tasks.core.records import Update

DESCRIPTION = "CFL: clusters split in two where updates point apart (Sattler et al., TNNLS 2021)"
ACCEPTS_AGGREGATOR = False
FIRST = "cfl"  # in RoundState.server: the largest change of round 1


class Settings(Section):
    """When a cluster splits; ||.|| is the norm of a client's change in a round."""

    eps1: float = Field(0.4, ge=0, description="A cluster splits only if the norm of the mean change is below this ...")
    eps2: float = Field(1.6, ge=0, description="... and the largest norm of a client's change is above this.")
    relative: bool = Field(
        False,
        description="Whether eps1 is a share of the largest norm of round 1, and eps2 one of the mean norm of the "
        "round: norms grow with the network and the learning rate.",
    )
    min_size: int = Field(2, ge=2, description="A cluster splits only if it has more clients than this.")
    warmup: int = Field(20, ge=0, description="Rounds before the first split.")
    weighting: Literal["uniform", "size"] = Field(
        "uniform", description="Average of a cluster: the plain mean, or weighted by sample count."
    )


def run_round(fed: "Federation", state: RoundState) -> RoundState:
    """Train from the clusters' models; split clusters that meet the criteria; average within each."""
    models = state.cluster_models or [state.global_model]
    cluster_of = dict(state.cluster_of or dict.fromkeys(fed.clients, 0))
    clients = fed.sample()
    payloads = {client: Payload.of(models[cluster_of[client]]) for client in clients}
    updates = fed.train(clients, payloads, stage=1, name="local training")
    if fed.method.relative and FIRST not in state.server:
        refs, start = [update.model for update in updates], fed.as_sent(models[0])
        state.server[FIRST] = fed.server_task(largest_change, refs, start, name="largest change")
    if fed.number > fed.method.warmup:
        for index, start in enumerate(list(models)):
            if split(fed, state, updates, cluster_of, index, len(models)):
                models.append(start)
    rows = {}
    for index in sorted({cluster_of[update.client] for update in updates}):
        rows[cluster_model(index)] = weights_of(fed, [u for u in updates if cluster_of[u.client] == index])
    averaged = fed.mix(updates, rows=rows, name="average within clusters")
    models = [averaged.get(cluster_model(index), model) for index, model in enumerate(models)]
    mean = fed.average(updates, list(weights_of(fed, updates).values()), name="average over clusters")
    state.set_clusters(cluster_of, models)
    state.own = {client: cluster_model(index) for client, index in cluster_of.items()}
    return state.with_global(mean)


def split(
    fed: "Federation", state: RoundState, updates: list["Update"], cluster_of: dict[str, int], index: int, new: int
) -> bool:
    """Move one half of a cluster to the cluster ``new`` if the criteria say so; return whether it was split."""
    members = [update for update in updates if cluster_of[update.client] == index]
    if len(members) <= fed.method.min_size:
        return False
    start = fed.as_sent((state.cluster_models or [state.global_model])[index])
    criteria = fed.method.eps1, fed.method.eps2, state.server.get(FIRST) if fed.method.relative else None
    refs = [update.model for update in members]
    halves = fed.server_task(split_cluster, refs, start, criteria, name="split", clients=len(members))
    if halves is None:
        return False
    cluster_of |= {update.client: new for update, half in zip(members, halves, strict=True) if half}
    fed.note(
        f"cluster {index} was split: {', '.join(c for c, at in cluster_of.items() if at == new)} are cluster {new}"
    )
    return True


def weights_of(fed: "Federation", updates: list["Update"]) -> dict[str, float]:
    """Return client -> weight in an average, summing to 1."""
    from tasks.server.aggregation import sample_count_weights  # needs torch

    if fed.method.weighting == "size":
        weights = sample_count_weights([update.samples for update in updates])
    else:
        weights = [1 / len(updates)] * len(updates)
    return dict(zip((update.client for update in updates), weights, strict=True))


def check(facts: RunFacts) -> None:
    """Require all clients in every round: the criteria compare all members of a cluster.

    Raises:
        ValueError: If clients are sampled.
    """
    if facts.clients_per_round is not None:
        raise ValueError(
            "method cfl compares all clients of a cluster in every round: federation.clients_per_round must be null, "
            f"found {facts.clients_per_round}"
        )
