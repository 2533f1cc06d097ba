"""FedAvg, federated averaging: McMahan et al., AISTATS 2017, algorithm 1; docs/algorithms/fedavg.md."""

from typing import TYPE_CHECKING

from models.settings.section import Section
from tasks.client.payload import Payload
from tasks.core.round_state import RoundState

if TYPE_CHECKING:
    from flows.federation.federation import Federation

DESCRIPTION = "FedAvg: local training, models weighted by sample count (McMahan et al., AISTATS 2017)"


class Settings(Section):
    """FedAvg has no settings beyond those of the local loop and the federation."""


def run_round(fed: "Federation", state: RoundState) -> RoundState:
    """Train the sampled clients from the global model; average their models, weighted by sample count."""
    updates = fed.train(fed.sample(), Payload.of(state.global_model), stage=1, name="local training")
    return state.with_global(fed.aggregate(updates, state.global_model, name="weighted average"))
