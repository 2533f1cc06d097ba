"""Local training without any exchange: what a site reaches alone (docs/algorithms/local.md)."""

from typing import TYPE_CHECKING

from models.settings.section import Section
from tasks.client.payload import Payload
from tasks.client.work import LocalWork
from tasks.core.round_state import RoundState, client_model

if TYPE_CHECKING:
    from flows.federation.federation import Federation

DESCRIPTION = "Local training: every client has its own model, nothing is exchanged"
ACCEPTS_AGGREGATOR = False


class Settings(Section):
    """The method has no settings."""


def run_round(fed: "Federation", state: RoundState) -> RoundState:
    """Train the participants' own models; all begin with the initial model, which stays the global one."""
    payloads = {}
    for client in fed.sample():
        own = state.models.get(client_model(client))
        payloads[client] = Payload.of(own or state.global_model, at_client=own is not None)
    for update in fed.train(sorted(payloads), payloads, LocalWork(stays=True), stage=1, name="local training"):
        name = client_model(update.client)
        state.models[name], state.own[update.client] = update.model, name
    return state
