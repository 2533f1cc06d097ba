"""FedNova, normalised averaging: Wang et al., NeurIPS 2020, eq 8; docs/algorithms/fednova.md."""

from typing import TYPE_CHECKING

from flows.methods.facts import RunFacts
from models.settings.section import Section
from tasks.client.payload import Payload
from tasks.core.aggregator_spec import AggregatorSpec
from tasks.core.round_state import RoundState

if TYPE_CHECKING:
    from flows.federation.federation import Federation

DESCRIPTION = "FedNova: averages each client's change per step (Wang et al., NeurIPS 2020)"

ACCEPTS_AGGREGATOR = False


class Settings(Section):
    """FedNova has no settings: the steps come with the updates, the momentum is that of the local loop."""


def run_round(fed: "Federation", state: RoundState) -> RoundState:
    """Train the sampled clients, then step to W - (sum p_i a_i) sum p_i (W - theta_i) / a_i."""
    start = state.global_model
    updates = fed.train(fed.sample(), Payload.of(start), stage=1, name="local training")
    spec = AggregatorSpec("tasks.server.fednova", {"momentum": fed.context.train.momentum})
    return state.with_global(fed.aggregate(updates, start, name="normalised average", spec=spec))


def check(facts: RunFacts) -> None:
    """Refuse a warm-up within a training: FedNova counts steps, which must be of one length.

    Raises:
        ValueError: If ``train.warmup_steps`` is set.
    """
    if facts.train.warmup_steps:
        raise ValueError(
            "method fednova divides a client's change by its number of steps, which must have one learning rate: "
            f"train.warmup_steps must be 0, found {facts.train.warmup_steps}; train.schedule may change it by round"
        )
