"""FedProx (Li et al., MLSys 2020, algorithm 2), with full local epochs for all clients."""

from typing import TYPE_CHECKING

from pydantic import Field

from models.base_settings import Section
from tasks.client.regularisers import RegulariserSpec
from tasks.core.records import ModelRef

if TYPE_CHECKING:
    from flows.federation.federation import Federation

TITLE = "FedProx: FedAvg with a pull to the global model (Li et al., MLSys 2020)"


class Settings(Section):
    """FedProx's one number."""

    mu: float = Field(
        0.01, ge=0, description="Weight of (mu/2) |theta - W|^2; the paper tries 0.001 to 1, and 0 is FedAvg."
    )


def run_round(fed: "Federation", start: ModelRef) -> ModelRef:
    """One round: local training near the global model, then the average by image count."""
    clients = fed.sample()
    near = RegulariserSpec("prox", {"mu": fed.method.mu})
    updates = fed.train(clients, start, stage=1, name="local training", references=[start], term=near)
    return fed.average(updates, name="average by size")
