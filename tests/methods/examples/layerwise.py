"""A personalised method: every client has a model of its own, mixed layer by layer with the others'."""

from typing import TYPE_CHECKING

from pydantic import Field

from models.settings.section import Section
from tasks.client.payload import Payload
from tasks.core.aggregator_spec import AggregatorSpec
from tasks.core.round_state import RoundState, client_model

if TYPE_CHECKING:
    from flows.federation.federation import Federation

DESCRIPTION = "example: a model per client, mixed layer by layer"


class Settings(Section):
    """How much of the backbone comes from the others; the head is always the client's own."""

    share: float = Field(0.5, ge=0, le=1, description="Weight of the other clients' backbones together.")


def run_round(fed: "Federation", state: RoundState) -> RoundState:
    """Train every client from its own model; mix the backbones."""
    clients = fed.sample()
    starts = {client: state.models.get(client_model(client), state.models["global"]) for client in clients}
    payloads = {client: Payload.of(start) for client, start in starts.items()}
    updates = fed.train(clients, payloads, stage=1, name="local training")
    spec = AggregatorSpec("tests.methods.examples.layerwise_mixing", {"share": fed.method.share})
    state.models |= fed.mix(updates, name="layer-wise mixing", spec=spec)
    state.own |= {update.client: client_model(update.client) for update in updates}
    return state
