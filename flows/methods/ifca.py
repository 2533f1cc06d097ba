"""IFCA: clients choose the model with their lowest loss (Ghosh et al., NeurIPS 2020; docs/algorithms/ifca.md)."""

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from flows.methods.clusters import average_clusters
from models.settings.section import Section
from tasks.client.payload import Payload
from tasks.core.round_state import RoundState, cluster_model
from tasks.server.personal.ifca import choose, further_model, with_shared_parts

if TYPE_CHECKING:
    from flows.federation.federation import Federation
    from tasks.core.records import ModelRef

DESCRIPTION = "IFCA: clients choose among k models the one with their lowest loss (Ghosh et al., NeurIPS 2020)"
ACCEPTS_AGGREGATOR = False


class Settings(Section):
    """The clusters."""

    clusters: int = Field(2, ge=1, description="Number of models k.")
    shared: Literal["none", "backbone"] = Field(
        "none", description="backbone: one image encoder for all clusters, which differ in their heads."
    )


def run_round(fed: "Federation", state: RoundState) -> RoundState:
    """Let the participants choose by their training loss; train, and average within each cluster."""
    models = state.cluster_models or initial_models(fed, state.global_model)
    clients = fed.sample()
    cluster_of = state.cluster_of | choose_clusters(fed, models, clients)
    # All k models came for the losses.
    payloads = {client: Payload.of(models[cluster_of[client]], at_client=True) for client in clients}
    updates = fed.train(clients, payloads, stage=1, name="local training")
    averaged = average_clusters(fed, updates, cluster_of)
    models = [averaged.get(cluster_model(index), model) for index, model in enumerate(models)]  # empty ones stay
    mean = fed.average(updates, name="average over clusters")
    if fed.method.shared == "backbone":
        models = [fed.server_task(with_shared_parts, model, mean, name="share the encoder") for model in models]
    state.set_clusters(cluster_of, models)
    state.own = {client: cluster_model(index) for client, index in cluster_of.items()}
    return state.with_global(mean)


def initial_models(fed: "Federation", first: "ModelRef") -> list["ModelRef"]:
    """Return k models: the run's initial one, and others of the same network with weights of their own."""
    shared = fed.method.shared == "backbone"
    return [first] + [
        fed.server_task(further_model, first, index, shared, name="another initial model")
        for index in range(1, fed.method.clusters)
    ]


def choose_clusters(fed: "Federation", models: list["ModelRef"], clients: list[str]) -> dict[str, int]:
    """Return client -> the model with its lowest loss on its training images; with one model nobody has to choose."""
    if len(models) == 1:
        return dict.fromkeys(clients, 0)
    losses = [
        fed.client_losses(model, name=f"losses of model {index}", split="train", clients=clients)
        for index, model in enumerate(models)
    ]
    return choose([{client: found[client][0] for client in clients} for found in losses])
