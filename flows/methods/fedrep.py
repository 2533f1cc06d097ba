"""FedRep, a shared representation and a head per client (Collins et al., ICML 2021; docs/algorithms/fedrep.md).

Clients train the head first, with the representation as they received it, then the representation with the head fixed.
"""

from typing import TYPE_CHECKING

from pydantic import Field

from flows.methods.facts import RunFacts
from models.settings.section import Section
from tasks.client.payload import Payload
from tasks.client.work import LocalWork
from tasks.core.round_state import GLOBAL, RoundState
from tasks.core.state_schema import parameters_of, read_schema

if TYPE_CHECKING:
    from flows.federation.federation import Federation

DESCRIPTION = "FedRep: a head per client, trained before the shared representation (Collins et al., ICML 2021)"


class Settings(Section):
    """The head, and how long it and the representation train."""

    personal: tuple[str, ...] = Field(
        ("readout.",),
        description="Prefixes of the names of the tensors that stay with each client: the head; [] for FedAvg.",
    )
    head_epochs: int | None = Field(
        None, ge=1, description="Epochs of the head in a round; null: train.epochs. The paper has 10."
    )
    body_epochs: int | None = Field(
        None, ge=1, description="Epochs of the representation in a round; null: train.epochs. The paper has 1 to 5."
    )


def run_round(fed: "Federation", state: RoundState) -> RoundState:
    """Train each client's head, then its representation; average the representations, weighted by sample count."""
    s: Settings = fed.method
    clients, start, head = fed.sample(), state.global_model, s.personal
    if not head:
        work = LocalWork(epochs=s.body_epochs)
        updates = fed.train(clients, Payload.of(start), work, stage=1, name="local training")
        return state.with_global(fed.aggregate(updates, start, name="weighted average"))

    first = LocalWork(trainable=head, keeps=head, epochs=s.head_epochs, stays=True)
    trained = [u.client for u in fed.train(clients, Payload.of(start), first, stage=1, name="head")]
    body = tuple(name for name in parameters_of(read_schema(fed.context)) if not name.startswith(head))
    second = LocalWork(trainable=body, keeps=head, epochs=s.body_epochs)
    received = Payload.of(fed.as_sent(start), at_client=True)
    updates = fed.train(trained, received, second, stage=2, name="representation")
    state.own |= {update.client: GLOBAL for update in updates}  # the global representation with the client's head
    return state.with_global(fed.aggregate(updates, start, name="weighted average"))


def check(facts: RunFacts) -> None:
    """Refuse a representation that never trains.

    Raises:
        ValueError: If ``train.freeze`` leaves the head only.
    """
    if facts.train.freeze != "none":
        raise ValueError(
            f"method fedrep trains the representation apart from the head: train.freeze must be none, found "
            f"{facts.train.freeze}; fedper keeps the heads at the clients without that"
        )
