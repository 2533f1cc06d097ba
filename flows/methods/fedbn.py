"""FedBN, batch normalisation that stays with each client (Li et al., ICLR 2021; docs/algorithms/fedbn.md)."""

from typing import TYPE_CHECKING

from models.errors import UserError
from models.settings.section import Section
from tasks.client.payload import Payload
from tasks.client.work import LocalWork
from tasks.core.round_state import GLOBAL, RoundState
from tasks.core.state_schema import batch_norms, read_schema

if TYPE_CHECKING:
    from flows.federation.federation import Federation

DESCRIPTION = "FedBN: batch normalisation stays with each client (Li et al., ICLR 2021)"


class Settings(Section):
    """FedBN has no settings."""


def run_round(fed: "Federation", state: RoundState) -> RoundState:
    """Train the sampled clients, each with its own batch normalisation; average the rest, weighted by sample count.

    Raises:
        UserError: If the network has none.
    """
    start, work = state.global_model, LocalWork(keeps=batch_norms(read_schema(fed.context)))
    if not work.keeps:
        raise UserError(
            "method fedbn needs a network with batch normalisation",
            where="model.name",
            expected="such as resnet18, or vgg11 with model.backbone.norm batch",
            found=fed.context.model.name,
        )
    updates = fed.train(fed.sample(), Payload.of(start), work, stage=1, name="local training")
    state.own |= {update.client: GLOBAL for update in updates}  # the global model with the client's normalisation
    return state.with_global(fed.aggregate(updates, start, name="weighted average"))
