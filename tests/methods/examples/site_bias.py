"""FedAvg in which every client keeps the bias of the last layer: how often each label occurs differs between sites."""

from typing import TYPE_CHECKING

from models.settings.section import Section
from tasks.client.payload import Payload
from tasks.client.work import LocalWork
from tasks.core.round_state import GLOBAL, RoundState

if TYPE_CHECKING:
    from flows.federation.federation import Federation

DESCRIPTION = "example: FedAvg with a bias per site"


class Settings(Section):
    """The method has no settings."""


def run_round(fed: "Federation", state: RoundState) -> RoundState:
    """Train the sampled clients; average all but the bias, which stays with its client."""
    start, work = state.global_model, LocalWork(keeps=("readout.bias",))
    updates = fed.train(fed.sample(), Payload.of(start), work, stage=1, name="local training")
    state.own |= {update.client: GLOBAL for update in updates}  # the global model with what the client keeps
    return state.with_global(fed.aggregate(updates, start, name="weighted average"))
