"""FedProx (Li et al., MLSys 2020, algorithm 2), with full local epochs for all clients; docs/algorithms/fedprox.md."""

from typing import TYPE_CHECKING

from pydantic import Field

from models.settings.section import Section
from tasks.client.payload import Payload
from tasks.client.regularisers import RegulariserSpec
from tasks.client.work import LocalWork
from tasks.core.round_state import RoundState

if TYPE_CHECKING:
    from flows.federation.federation import Federation

DESCRIPTION = "FedProx: FedAvg with a proximal term (Li et al., MLSys 2020)"


class Settings(Section):
    """FedProx's weight of the proximal term."""

    mu: float = Field(
        0.01, ge=0, description="Weight of (mu/2) |theta - W|^2; the paper tries 0.001 to 1, and 0 is FedAvg."
    )


def run_round(fed: "Federation", state: RoundState) -> RoundState:
    """Train the sampled clients with the proximal term; average their models, weighted by sample count."""
    proximal = LocalWork(regularisers=(RegulariserSpec("prox", {"mu": fed.method.mu}),))
    updates = fed.train(fed.sample(), Payload.of(state.global_model), proximal, stage=1, name="local training")
    return state.with_global(fed.aggregate(updates, state.global_model, name="weighted average"))
