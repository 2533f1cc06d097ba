"""Ditto, FedAvg and a personal model beside it (Li et al., ICML 2021, algorithm 1; docs/algorithms/ditto.md)."""

from typing import TYPE_CHECKING

from pydantic import Field

from flows.methods.facts import RunFacts
from models.settings.section import Section
from tasks.client.payload import Payload
from tasks.client.regularisers import RegulariserSpec
from tasks.client.work import LocalWork
from tasks.core.round_state import RoundState, client_model

if TYPE_CHECKING:
    from flows.federation.federation import Federation

DESCRIPTION = "Ditto: FedAvg, and a personal model near the global one (Li et al., ICML 2021)"


class Settings(Section):
    """How near personal models are to the global one, and how long they train."""

    lam: float = Field(
        0.1,
        ge=0,
        description="lambda, the weight of (lambda/2) |v - W|^2; the paper tries 0.05 to 2, and with 0 personal models "
        "are trained locally.",
    )
    personal_epochs: int | None = Field(
        None, ge=1, description="Epochs of the personal model in a round; null: train.epochs."
    )


def run_round(fed: "Federation", state: RoundState) -> RoundState:
    """Do a round of FedAvg; train the participants' personal models towards the model that they received."""
    s: Settings = fed.method
    start = state.global_model
    updates = fed.train(fed.sample(), Payload.of(start), stage=1, name="local training")
    received = fed.as_sent(start)
    payloads = {}
    for client in (update.client for update in updates):
        own = state.models.get(client_model(client), received)
        payloads[client] = Payload.of(own, references=[received], at_client=True, held=[received])
    near = LocalWork(regularisers=(RegulariserSpec("ditto", {"lam": s.lam}),), epochs=s.personal_epochs, stays=True)
    for own_update in fed.train(sorted(payloads), payloads, near, stage=2, name="personal training"):
        name = client_model(own_update.client)
        state.models[name], state.own[own_update.client] = own_update.model, name
    return state.with_global(fed.aggregate(updates, start, name="weighted average"))


def check(facts: RunFacts) -> None:
    """Refuse statistics that stay at clients: a client's two models would share them.

    Raises:
        ValueError: If ``federation.bn_policy`` is ``local``.
    """
    if facts.bn_policy == "local":
        raise ValueError(
            "method ditto trains two models at each client, which would share its BatchNorm statistics: "
            "federation.bn_policy must not be local"
        )
