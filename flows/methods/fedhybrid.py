"""FedHybrid, a primal-dual method (Niu and Wei, IEEE Trans. Signal Processing 2023; docs/algorithms/fedhybrid.md).

Gradient-type clients only: the paper's Newton-type clients, which precondition by a Hessian, are left out.
"""

from typing import TYPE_CHECKING, Literal, Self

from pydantic import Field, model_validator

from models.settings.section import Section
from tasks.client.payload import Payload
from tasks.client.regularisers import RegulariserSpec
from tasks.client.work import LocalWork
from tasks.core.aggregator_spec import AggregatorSpec
from tasks.core.round_state import RoundState

if TYPE_CHECKING:
    from flows.federation.federation import Federation

DESCRIPTION = "FedHybrid: proximal training with a dual variable per client (Niu and Wei, IEEE TSP 2023)"


class Settings(Section):
    """FedHybrid's penalty and its version."""

    mu: float = Field(
        0.01,
        ge=0,
        description="Weight of (mu/2) |x - x_0|^2; tune in 0.001 to 1. Few local steps need a large one: "
        "duals take effect only as fast as local training follows them.",
    )
    version: Literal["dual", "prox"] = Field(
        "dual",
        description="dual: the paper's method, whose clients keep a dual variable from round to round; "
        "prox: FedProx, without duals and weighted by sample count, for clients that rarely take part twice.",
    )
    weighting: Literal["uniform", "size"] = Field(
        "uniform",
        description="What the dual version minimises: the plain mean of the clients' losses, or their mean weighted by "
        "sample count. The prox version is always weighted by sample count.",
    )

    @model_validator(mode="after")
    def _settings_fit_the_version(self) -> Self:
        if self.version == "dual" and self.mu == 0:
            raise ValueError("version dual divides by mu, so mu must be above 0; version prox with mu 0 is FedAvg")
        if self.version == "prox" and self.weighting == "size":
            raise ValueError(
                "weighting is used by version dual only (prox always weights by sample count); set it to uniform"
            )
        return self


def ACCEPTS_AGGREGATOR(settings: Settings) -> bool:  # noqa: N802 - a constant for most methods
    """Return whether the version averages; the dual one has a server step of its own."""
    return settings.version == "prox"


def run_round(fed: "Federation", state: RoundState) -> RoundState:
    """Train the sampled clients, then x_0 = mean of the participants' x_i - (1/n) sum of all clients' y_i / mu."""
    s: Settings = fed.method
    clients, start = fed.sample(), state.global_model
    n, samples = len(fed.clients), sum(fed.clients.values())
    if s.version == "prox":
        proximal = LocalWork(regularisers=(RegulariserSpec("prox", {"mu": s.mu}),))
        updates = fed.train(clients, Payload.of(start), proximal, stage=1, name="local training")
        return state.with_global(fed.aggregate(updates, start, name="weighted average"))

    scales = {c: n * fed.clients[c] / samples if s.weighting == "size" else 1.0 for c in clients}
    dual = {c: LocalWork(regularisers=(RegulariserSpec("dual", {"mu": s.mu, "scale": scales[c]}),)) for c in clients}
    updates = fed.train(clients, Payload.of(start), dual, stage=1, name="local training")
    # The duals' changes are mu (x_0 - x_i): the server computes their sum itself, so clients upload nothing more.
    spec = AggregatorSpec("tasks.server.fedhybrid", {"mu": s.mu})
    return state.with_global(fed.aggregate(updates, start, name="average with duals", spec=spec, facts={"clients": n}))
