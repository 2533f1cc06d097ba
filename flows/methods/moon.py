"""MOON, model-contrastive federated learning (Li, He and Song, CVPR 2021, algorithm 1; docs/algorithms/moon.md)."""

from typing import TYPE_CHECKING

from pydantic import Field

from models.settings.section import Section
from tasks.client.payload import Payload
from tasks.client.regularisers import RegulariserSpec
from tasks.client.work import LocalWork
from tasks.core.round_state import RoundState

if TYPE_CHECKING:
    from flows.federation.federation import Federation

DESCRIPTION = "MOON: FedAvg with a contrastive loss between global and previous model (Li, He and Song, CVPR 2021)"


class Settings(Section):
    """MOON's contrastive loss, which begins with a client's second training: it needs stateful clients."""

    mu: float = Field(
        1.0, ge=0, description="Weight of the contrastive loss; the paper's code tries 0.001 to 10, and 0 is FedAvg."
    )
    temperature: float = Field(0.5, gt=0, description="Divides the cosines.")


def run_round(fed: "Federation", state: RoundState) -> RoundState:
    """Train the sampled clients with the contrastive loss; average their models, weighted by sample count."""
    values = {"mu": fed.method.mu, "temperature": fed.method.temperature}
    contrastive = LocalWork(regularisers=(RegulariserSpec("moon", values),))
    updates = fed.train(fed.sample(), Payload.of(state.global_model), contrastive, stage=1, name="local training")
    return state.with_global(fed.aggregate(updates, state.global_model, name="weighted average"))
