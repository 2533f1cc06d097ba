"""FedAvg, then local epochs at every client: the reference for personal models (docs/algorithms/fedavg_finetune.md)."""

from typing import TYPE_CHECKING

from pydantic import Field

from models.settings.section import Section
from tasks.client.payload import Payload
from tasks.client.work import LocalWork
from tasks.core.round_state import RoundState, client_model

if TYPE_CHECKING:
    from flows.federation.federation import Federation

DESCRIPTION = "FedAvg; the global model is then fine-tuned at every client, whose own model that is"


class Settings(Section):
    """How long clients fine-tune."""

    epochs: int = Field(2, ge=0, description="Epochs of the fine-tuning; 0: clients have the global model.")


def run_round(fed: "Federation", state: RoundState) -> RoundState:
    """Do a round of FedAvg; where the round is evaluated, fine-tune its global model at every client."""
    start = state.global_model
    updates = fed.train(fed.sample(), Payload.of(start), stage=1, name="local training")
    state.with_global(fed.aggregate(updates, start, name="weighted average"))
    for name in [name for name in state.models if name in state.own.values()]:
        del state.models[name]  # of an earlier global model
    state.own.clear()
    if fed.method.epochs == 0 or not fed.is_evaluated:
        return state
    work, payload = LocalWork(epochs=fed.method.epochs, stays=True), Payload.of(state.global_model)
    # Not committed: what clients keep for their next training is FedAvg's.
    for update in fed.train(sorted(fed.clients), payload, work, stage=2, name="fine-tuning", commit=False):
        name = client_model(update.client)
        state.models[name], state.own[update.client] = update.model, name
    return state
