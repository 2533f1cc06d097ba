"""FedAMP, attentive message passing (Huang et al., AAAI 2021; arXiv 2007.03797; docs/algorithms/fedamp.md)."""

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from models.settings.section import Section
from tasks.client.payload import Payload
from tasks.client.regularisers import RegulariserSpec
from tasks.client.work import LocalWork
from tasks.core.aggregator_spec import AggregatorSpec
from tasks.core.round_state import RoundState, client_model, upload_model

if TYPE_CHECKING:
    from flows.federation.federation import Federation

DESCRIPTION = "FedAMP: a cloud model per client, near which it trains its own (Huang et al., AAAI 2021)"

ACCEPTS_AGGREGATOR = False


class Settings(Section):
    """FedAMP's weights between clients, and how near a client's model stays to its cloud model."""

    version: Literal["heuristic", "distance"] = Field(
        "heuristic",
        description="Weights between clients: a softmax of sigma times the cosines of their models (HeurFedAMP, for "
        "deep networks), or alpha exp(-|w_i - w_j|^2 / sigma) / sigma.",
    )
    sigma: float = Field(25.0, gt=0, description="Scale of the cosines, or width of the kernel of distances.")
    self_weight: float | None = Field(
        None, ge=0, le=1, description="heuristic: weight s of a client's own model; null: 1 / N."
    )
    lam: float = Field(
        1.0, ge=0, description="lambda of (lambda / 2 alpha) |w - u|^2; with 0 and init own a client trains locally."
    )
    alpha: float = Field(1e4, gt=0, description="alpha of the first round.")
    alpha_decay: float = Field(0.1, gt=0, le=1, description="Factor of alpha after every alpha_rounds rounds.")
    alpha_rounds: int = Field(30, ge=1, description="Rounds with one alpha.")
    init: Literal["own", "cloud"] = Field(
        "own", description="What a client's training starts from: the model that it trained last, or its cloud model."
    )


def round_alpha(settings: Settings, number: int) -> float:
    """Return alpha_t of a round, counted from 1."""
    return float(settings.alpha * settings.alpha_decay ** ((number - 1) // settings.alpha_rounds))


def run_round(fed: "Federation", state: RoundState) -> RoundState:
    """Train each participant near its cloud model; mix the models that come back into new cloud models."""
    s: Settings = fed.method
    alpha, payloads = round_alpha(s, fed.number), {}
    for client in fed.sample():
        cloud = state.models.get(client_model(client), state.global_model)
        own = state.models.get(upload_model(client)) if s.init == "own" else None
        payloads[client] = Payload.of(own or cloud, references=[cloud], at_client=own is not None)
    near = LocalWork(regularisers=(RegulariserSpec("fedamp", {"mu": s.lam / alpha}),))
    updates = fed.train(sorted(payloads), payloads, near, stage=1, name="local training")
    values = s.model_dump(mode="json", include={"version", "sigma", "self_weight"}) | {"alpha": alpha}
    model = fed.aggregate(
        updates, state.global_model, name="message passing", spec=AggregatorSpec("tasks.server.personal.fedamp", values)
    )
    for update in updates:
        name = upload_model(update.client)
        state.models[name], state.own[update.client] = update.model, name
    return state.with_global(model)
