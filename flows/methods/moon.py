"""MOON, model-contrastive federated learning (Li, He and Song, CVPR 2021, algorithm 1; docs/algorithms/moon.md)."""

from typing import TYPE_CHECKING

from pydantic import Field

from models.base_settings import Section
from tasks.client.regularisers import RegulariserSpec
from tasks.core.records import ModelRef

if TYPE_CHECKING:
    from flows.federation.federation import Federation

DESCRIPTION = "MOON: FedAvg with a contrastive loss between global and previous model (Li, He and Song, CVPR 2021)"


class Settings(Section):
    """MOON's contrastive loss, which begins with a client's second training: it needs stateful clients."""

    mu: float = Field(
        1.0, ge=0, description="Weight of the contrastive loss; the paper's code tries 0.001 to 10, and 0 is FedAvg."
    )
    temperature: float = Field(0.5, gt=0, description="Divides the cosines.")


def run_round(fed: "Federation", start: ModelRef) -> ModelRef:
    """Train the sampled clients with the contrastive loss; average their models, weighted by sample count."""
    clients = fed.sample()
    contrastive = RegulariserSpec("moon", {"mu": fed.method.mu, "temperature": fed.method.temperature})
    updates = fed.train(clients, start, stage=1, name="local training", regulariser=contrastive)
    return fed.average(updates, name="weighted average")
