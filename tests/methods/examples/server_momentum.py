"""FedAvg whose server moves with momentum: the method asks for an aggregator that is there already."""

from typing import TYPE_CHECKING

from pydantic import Field

from models.settings.section import Section
from tasks.client.payload import Payload
from tasks.core.aggregator_spec import AggregatorSpec
from tasks.core.round_state import RoundState

if TYPE_CHECKING:
    from flows.federation.federation import Federation

DESCRIPTION = "example: server momentum"
ACCEPTS_AGGREGATOR = False


class Settings(Section):
    """The server's momentum."""

    momentum: float = Field(0.9, ge=0, lt=1, description="Momentum.")


def run_round(fed: "Federation", state: RoundState) -> RoundState:
    """Train the sampled clients; step along their mean change with momentum."""
    start = state.global_model
    updates = fed.train(fed.sample(), Payload.of(start), stage=1, name="local training")
    spec = AggregatorSpec("fedavgm", {"momentum": fed.method.momentum})
    return state.with_global(fed.aggregate(updates, start, name="server momentum", spec=spec))
