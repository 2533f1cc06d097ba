"""FedALA, adaptive local aggregation (Zhang et al., AAAI 2023, algorithm 1; docs/algorithms/fedala.md)."""

from typing import TYPE_CHECKING

from pydantic import Field

from models.settings.section import Section
from tasks.client.payload import Payload
from tasks.client.regularisers import RegulariserSpec
from tasks.client.work import LocalWork
from tasks.core.round_state import RoundState, client_model

if TYPE_CHECKING:
    from flows.federation.federation import Federation

DESCRIPTION = "FedALA: each client mixes the global model into its own, entry by entry (Zhang et al., AAAI 2023)"


class Settings(Section):
    """Which layers are mixed, and how their weights are learned."""

    layers: tuple[str, ...] = Field(
        ("readout.",),
        description="Prefixes of the names of the parameters that are mixed: the last layers; the others are the "
        "global model's. [] for FedAvg.",
    )
    eta: float = Field(1.0, gt=0, description="Learning rate of the weights.")
    share: float = Field(0.8, gt=0, le=1, description="Share of a client's images on which they are learned.")
    threshold: float = Field(
        0.1, ge=0, description="A client's first weights are learned until the losses' standard deviation is below it."
    )
    window: int = Field(10, ge=2, description="Number of the last losses that the standard deviation is of.")
    max_passes: int = Field(100, ge=1, description="Most passes over the images for a client's first weights.")


def run_round(fed: "Federation", state: RoundState) -> RoundState:
    """Train the sampled clients from their mixtures; average their models, weighted by sample count."""
    start, values = state.global_model, fed.method.model_dump(mode="json")
    adaptive = LocalWork(regularisers=(RegulariserSpec("fedala", values),))
    updates = fed.train(fed.sample(), Payload.of(start), adaptive, stage=1, name="local training")
    for update in updates:
        name = client_model(update.client)
        state.models[name], state.own[update.client] = update.model, name
    return state.with_global(fed.aggregate(updates, start, name="weighted average"))
