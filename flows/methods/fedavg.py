"""FedAvg, federated averaging: McMahan et al., AISTATS 2017, algorithm 1; docs/algorithms/fedavg.md."""

from typing import TYPE_CHECKING

from models.base_settings import Section
from tasks.core.records import ModelRef

if TYPE_CHECKING:
    from flows.federation.federation import Federation

DESCRIPTION = "FedAvg: local training, models weighted by sample count (McMahan et al., AISTATS 2017)"


class Settings(Section):
    """FedAvg has no settings beyond those of the local loop and the federation."""


def run_round(fed: "Federation", start: ModelRef) -> ModelRef:
    """Train the sampled clients from the global model; average their models, weighted by sample count."""
    clients = fed.sample()
    updates = fed.train(clients, start, stage=1, name="local training")
    return fed.average(updates, name="weighted average")
