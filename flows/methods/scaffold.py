"""SCAFFOLD, controlled averaging: Karimireddy et al., ICML 2020, algorithm 1; docs/algorithms/scaffold.md."""

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from flows.methods.facts import RunFacts
from models.settings.section import Section
from tasks.client.payload import Payload
from tasks.client.regularisers import RegulariserSpec
from tasks.client.schedule import learning_rate
from tasks.client.work import LocalWork
from tasks.core.aggregator_spec import AggregatorSpec
from tasks.core.round_state import RoundState

if TYPE_CHECKING:
    from flows.federation.federation import Federation

DESCRIPTION = "SCAFFOLD: control variates correct each client's drift (Karimireddy et al., ICML 2020)"

ACCEPTS_AGGREGATOR = False


class Settings(Section):
    """What SCAFFOLD minimises; the server's step size is 1."""

    weighting: Literal["uniform", "size"] = Field(
        "uniform",
        description="uniform: minimise the plain mean of the clients' losses, as published; size: their mean weighted "
        "by sample count.",
    )


def run_round(fed: "Federation", state: RoundState) -> RoundState:
    """Train with g - c_i + c, then W += mean(theta_i - W) and c += (1/n) sum(c_i_new - c_i)."""
    start, corrected = state.global_model, LocalWork(regularisers=(RegulariserSpec("control"),))
    payload = Payload.of(start, method=state.server.get("scaffold"))
    updates = fed.train(fed.sample(), payload, corrected, stage=1, name="local training")
    spec = AggregatorSpec("tasks.server.scaffold", {"weighting": fed.method.weighting})
    facts = {"lr": learning_rate(fed.context.train, fed.number), "sizes": dict(fed.clients)}
    name = "model and control variate"
    return state.with_global(fed.aggregate(updates, start, name=name, spec=spec, facts=facts))


def check(facts: RunFacts) -> None:
    """Require SGD without momentum, clipping and one rate for all steps: else control variates are no mean gradients.

    Raises:
        ValueError: If another optimiser, momentum, clipping, warm-up steps or rates by part are set.
    """
    train = facts.train
    found = {"train.optimizer": train.optimizer, "train.momentum": train.momentum, "train.grad_clip": train.grad_clip}
    if found != {"train.optimizer": "sgd", "train.momentum": 0, "train.grad_clip": None}:
        raise ValueError(
            "method scaffold needs plain SGD, as its control variates are mean gradients: train.optimizer sgd, "
            f"train.momentum 0, train.grad_clip null; found {', '.join(f'{k} {v}' for k, v in found.items())}. "
            "--preset scaffold sets them, with a larger train.lr"
        )
    if train.warmup_steps or train.group_lr.differ:
        raise ValueError(
            "method scaffold divides by one learning rate for all steps and parameters: train.warmup_steps must be 0 "
            f"and both factors of train.group_lr alike; found {train.warmup_steps} steps, backbone "
            f"{train.group_lr.backbone:g} and head {train.group_lr.head:g}. train.schedule may change the rate by round"
        )
