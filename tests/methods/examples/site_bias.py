"""FedAvg in which every client keeps the bias of the last layer: how often each label occurs differs between sites."""

from typing import TYPE_CHECKING

from flows.methods.facts import RunFacts
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


def check(facts: RunFacts) -> None:
    """Require all clients in every round: a site that is not sampled would keep an old bias.

    Raises:
        ValueError: If clients are sampled.
    """
    if facts.clients_per_round is not None:
        raise ValueError(
            "method site_bias needs all clients in every round: federation.clients_per_round null; "
            f"found {facts.clients_per_round}"
        )
