"""CPFL, a reconstruction from the abstract: mixtures by the earth mover's distance; docs/algorithms/cpfl.md."""

from typing import TYPE_CHECKING

from tasks.client.payload import Payload
from tasks.core.aggregator_spec import AggregatorSpec
from tasks.core.round_state import RoundState, client_model
from tasks.server.personal.cpfl import Settings

if TYPE_CHECKING:
    from flows.federation.federation import Federation

__all__ = ["ACCEPTS_AGGREGATOR", "DESCRIPTION", "Settings", "run_round"]
DESCRIPTION = "CPFL, our reconstruction from its abstract: a model per client, mixed by the earth mover's distance"

ACCEPTS_AGGREGATOR = False


def run_round(fed: "Federation", state: RoundState) -> RoundState:
    """Train each participant from its own model; give it its mixture of the models that come back."""
    clients, before = fed.sample(), state.global_model
    starts = {client: state.models.get(client_model(client), before) for client in clients}
    payloads = {client: Payload.of(start) for client, start in starts.items()}
    updates = fed.train(clients, payloads, stage=1, name="local training")
    state.own |= {update.client: client_model(update.client) for update in updates}
    model = fed.aggregate(
        updates,
        before,
        name="mixing by distance",
        spec=AggregatorSpec("tasks.server.personal.cpfl", fed.method.model_dump(mode="json")),
        starts={update.client: fed.as_sent(starts[update.client]) for update in updates},
    )
    return state.with_global(model)
