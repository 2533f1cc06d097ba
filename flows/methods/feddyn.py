"""FedDyn, dynamic regularisation (Acar et al., ICLR 2021, algorithm 1; docs/algorithms/feddyn.md).

Its step is that of FedHybrid's version ``dual`` with mu = alpha, whose client's and server's parts do the work here.
"""

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from models.settings.section import Section
from tasks.client.payload import Payload
from tasks.client.regularisers import RegulariserSpec
from tasks.client.work import LocalWork
from tasks.core.aggregator_spec import AggregatorSpec
from tasks.core.round_state import RoundState

if TYPE_CHECKING:
    from flows.federation.federation import Federation

DESCRIPTION = "FedDyn: a linear and a proximal term that cancel client drift (Acar et al., ICLR 2021)"

ACCEPTS_AGGREGATOR = False


class Settings(Section):
    """FedDyn's penalty, and what it minimises."""

    alpha: float = Field(
        0.01, ge=0, description="Weight of (alpha/2) |theta - W|^2; the paper tries 0.001 to 0.1, and 0 is FedAvg."
    )
    weighting: Literal["uniform", "size"] = Field(
        "uniform",
        description="uniform: minimise the plain mean of the clients' losses, as published; size: their mean weighted "
        "by sample count.",
    )


def run_round(fed: "Federation", state: RoundState) -> RoundState:
    """Train with the linear and the proximal term; then h -= (alpha/m) sum(theta_i - W), W = mean theta_i - h/alpha."""
    s: Settings = fed.method
    clients, start = fed.sample(), state.global_model
    if not s.alpha:
        updates = fed.train(clients, Payload.of(start), stage=1, name="local training")
        weights = None if s.weighting == "size" else [1 / len(updates)] * len(updates)
        return state.with_global(fed.average(updates, weights, name="average"))

    m, samples = len(fed.clients), sum(fed.clients.values())
    scales = {c: m * fed.clients[c] / samples if s.weighting == "size" else 1.0 for c in clients}
    work = {c: LocalWork(regularisers=(RegulariserSpec("dual", {"mu": s.alpha, "scale": scales[c]}),)) for c in clients}
    updates = fed.train(clients, Payload.of(start), work, stage=1, name="local training")
    spec = AggregatorSpec("tasks.server.fedhybrid", {"mu": s.alpha})
    return state.with_global(fed.aggregate(updates, start, name="average with h", spec=spec, facts={"clients": m}))
