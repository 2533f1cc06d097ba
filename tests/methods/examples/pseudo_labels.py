"""A semi-supervised method: the server trains on its labelled images, the clients on pseudo-labels of theirs."""

from typing import TYPE_CHECKING

from pydantic import Field

from models.settings.section import Section
from tasks.client.local_data import SERVER
from tasks.client.payload import Payload
from tasks.client.work import LocalWork, ObjectiveSpec
from tasks.core.round_state import RoundState

if TYPE_CHECKING:
    from flows.federation.federation import Federation

DESCRIPTION = "example: labels at the server, pseudo-labels at the clients"
DATA = "unlabelled"


class Settings(Section):
    """When a prediction counts as a label."""

    confidence: float = Field(0.6, ge=0.5, lt=1, description="Least probability of a pseudo-label, or of its absence.")


def run_round(fed: "Federation", state: RoundState) -> RoundState:
    """Train at the server, then at the clients from its model; average the clients' models."""
    (taught,) = fed.train([SERVER], Payload.of(state.global_model), stage=1, name="training at the server")
    objective = ObjectiveSpec("tests.methods.examples.pseudo_label_loss", {"confidence": fed.method.confidence})
    work = LocalWork(objective=objective, data="unlabelled")
    updates = fed.train(fed.sample(), Payload.of(taught.model), work, stage=2, name="training on pseudo-labels")
    return state.with_global(fed.aggregate(updates, taught.model, name="weighted average"))
