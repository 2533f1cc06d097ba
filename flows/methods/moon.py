"""MOON, model-contrastive federated learning (Li, He and Song, CVPR 2021, algorithm 1; specification 4.4)."""

from typing import TYPE_CHECKING

from pydantic import Field

from models.base_settings import Section
from tasks.client.regularisers import RegulariserSpec
from tasks.core.records import ModelRef

if TYPE_CHECKING:
    from flows.federation.federation import Federation

TITLE = "MOON: FedAvg with a contrast between global and previous model (Li, He and Song, CVPR 2021)"


class Settings(Section):
    """MOON's numbers. The term begins with a client's second training, so a fixed pool of clients is needed."""

    mu: float = Field(
        1.0, ge=0, description="Weight of the contrast; the paper's code tries 0.001 to 10, and 0 is FedAvg."
    )
    temperature: float = Field(0.5, gt=0, description="Divides the cosines.")


def run_round(fed: "Federation", start: ModelRef) -> ModelRef:
    """One round: local training with the contrast, then the average by image count."""
    clients = fed.sample()
    contrast = RegulariserSpec("moon", {"mu": fed.method.mu, "temperature": fed.method.temperature})
    updates = fed.train(clients, start, stage=1, name="local training", references=[start], term=contrast)
    return fed.average(updates, name="average by size")
