"""Federated averaging: McMahan et al., AISTATS 2017, algorithm 1."""

from typing import TYPE_CHECKING

from models.base_settings import Section
from tasks.core.records import ModelRef

if TYPE_CHECKING:
    from flows.federation.federation import Federation

TITLE = "FedAvg: one local training, one average by size (McMahan et al., AISTATS 2017)"


class Settings(Section):
    """FedAvg has nothing to set beyond the local loop and the federation."""


def run_round(fed: "Federation", start: ModelRef) -> ModelRef:
    """One round: sampled clients train from the global model; their models are averaged by image count."""
    clients = fed.sample()
    updates = fed.train(clients, start, references=[start], stage=1, name="local training")
    return fed.average(updates, name="average by size")
