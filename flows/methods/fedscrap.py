"""FedScrap: W. Zhang, D. Deng and L. Wang, Electronics 2024, 13(3), 527, algorithm 1; docs/algorithms/fedscrap.md."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from flows.methods.fedscrap_settings import ATTENTION, Settings, check, require_names
from tasks.client.payload import Payload
from tasks.core.aggregator_spec import AggregatorSpec
from tasks.core.records import Update
from tasks.core.round_state import RoundState, client_model, received_model, upload_model

if TYPE_CHECKING:
    from flows.federation.federation import Federation

__all__ = ["ACCEPTS_AGGREGATOR", "DESCRIPTION", "Settings", "check", "run_round"]
DESCRIPTION = "FedScrap: a model per client, mixed layer by layer by attention (Electronics 2024, 13(3), 527)"

ACCEPTS_AGGREGATOR = False


def run_round(fed: "Federation", state: RoundState) -> RoundState:
    """Train each participant from its own model; give it, layer by layer, the mixture that its attention says."""
    s: Settings = fed.method
    require_names(fed)
    clients, before = fed.sample(), state.global_model
    starts = {client: state.models.get(client_model(client), before) for client in clients}
    payloads = {client: Payload.of(start) for client, start in starts.items()}
    updates = fed.train(clients, payloads, stage=1, name="local training")
    if len(updates) == 2 and s.attention == "centered_cosine":
        fed.note("two clients reported: the cosine between their centred layers is -1 whatever they learned")

    received = {update.client: fed.as_sent(starts[update.client]) for update in updates}
    stale = absent_uploads(fed, state, updates) if s.stale else []
    for update in updates:
        state.own[update.client] = (upload_model if s.own_model == "trained" else client_model)(update.client)
        if s.stale or s.own_model == "trained":
            state.models[upload_model(update.client)] = update.model
        if s.stale and s.attention == "update_cosine":
            state.models[received_model(update.client)] = received[update.client]

    mixed = sorted([*updates, *stale], key=lambda update: update.client)
    if s.attention == "update_cosine":
        received |= {update.client: state.models[received_model(update.client)] for update in stale}
    total, absent = sum(update.samples for update in updates), [update.client for update in stale]
    model = fed.aggregate(
        mixed,
        before,
        name="attention",
        weights=[0.0 if update.client in absent else update.samples / total for update in mixed],
        spec=AggregatorSpec("tasks.server.personal.fedscrap", s.model_dump(mode="json", include=ATTENTION)),
        facts={"stale": absent},
        starts=received if s.attention == "update_cosine" else None,
    )
    return state.with_global(model)


def absent_uploads(fed: "Federation", state: RoundState, updates: Sequence[Update]) -> list[Update]:
    """Return what clients that did not report in this round sent last."""
    reported = {update.client for update in updates}
    last = {client: state.models.get(upload_model(client)) for client in sorted(fed.clients.keys() - reported)}
    return [Update(client, ref, fed.clients[client], 0, {}, 0.0) for client, ref in last.items() if ref is not None]
