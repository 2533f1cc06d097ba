"""FedPer, personalisation layers that stay with each client (Arivazhagan et al., 2019; docs/algorithms/fedper.md)."""

from typing import TYPE_CHECKING

from pydantic import Field

from models.settings.section import Section
from tasks.client.payload import Payload
from tasks.client.work import LocalWork
from tasks.core.round_state import GLOBAL, RoundState

if TYPE_CHECKING:
    from flows.federation.federation import Federation

DESCRIPTION = "FedPer: the last layers stay with each client (Arivazhagan et al., arXiv 1912.00818)"


class Settings(Section):
    """Which layers are personal."""

    personal: tuple[str, ...] = Field(
        ("readout.",),
        description="Prefixes of the names of the tensors that stay with each client: the classification head; more "
        "for more layers, [] for FedAvg.",
    )


def run_round(fed: "Federation", state: RoundState) -> RoundState:
    """Train the sampled clients, each with its personal layers; average the others, weighted by sample count."""
    start, work = state.global_model, LocalWork(keeps=fed.method.personal)
    updates = fed.train(fed.sample(), Payload.of(start), work, stage=1, name="local training")
    if work.keeps:
        state.own |= {update.client: GLOBAL for update in updates}  # the global model with the client's layers
    return state.with_global(fed.aggregate(updates, start, name="weighted average"))
