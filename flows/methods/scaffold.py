"""SCAFFOLD, controlled averaging: Karimireddy et al., ICML 2020, algorithm 1; docs/algorithms/scaffold.md."""

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from flows.methods import RunFacts
from models.base_settings import Section
from tasks.client.regularisers import RegulariserSpec
from tasks.core.records import ModelRef

if TYPE_CHECKING:
    from flows.federation.federation import Federation

DESCRIPTION = "SCAFFOLD: control variates correct each client's drift (Karimireddy et al., ICML 2020)"


class Settings(Section):
    """What SCAFFOLD minimises; the server's step size is 1."""

    weighting: Literal["uniform", "size"] = Field(
        "uniform",
        description="uniform: minimise the plain mean of the clients' losses, as published; size: their mean weighted "
        "by sample count.",
    )


def run_round(fed: "Federation", start: ModelRef) -> ModelRef:
    """Train with g - c_i + c, then W += mean(theta_i - W) and c += (1/n) sum(c_i_new - c_i)."""
    clients = fed.sample()
    control = RegulariserSpec("control")
    updates = fed.train(
        clients, start, stage=1, name="local training", regulariser=control, server_tensors=fed.server_state
    )

    sizes = fed.clients if fed.method.weighting == "size" else dict.fromkeys(fed.clients, 1)
    reported = sum(sizes[u.client] for u in updates)
    weights = [sizes[u.client] / reported for u in updates]  # among the participants
    fractions = [sizes[u.client] / sum(sizes.values()) for u in updates]  # among all clients
    models, samples, steps = [u.model for u in updates], [u.samples for u in updates], [u.steps for u in updates]
    model, fed.server_state = fed.server_task(
        "scaffold-step",
        models,
        samples,
        steps,
        start,
        fed.server_state,
        weights,
        fractions,
        name="model and control variate",
    )
    fed.record.weights = {u.client: weight for u, weight in zip(updates, weights, strict=True)}
    return model


def check(facts: RunFacts) -> None:
    """Require SGD without momentum and clipping: else control variates are no mean gradients.

    Raises:
        ValueError: If another optimiser, momentum or clipping is set.
    """
    train = facts.train
    found = {"train.optimizer": train.optimizer, "train.momentum": train.momentum, "train.grad_clip": train.grad_clip}
    if found != {"train.optimizer": "sgd", "train.momentum": 0, "train.grad_clip": None}:
        raise ValueError(
            "method scaffold needs plain SGD, as its control variates are mean gradients: train.optimizer sgd, "
            f"train.momentum 0, train.grad_clip null; found {', '.join(f'{k} {v}' for k, v in found.items())}. "
            "--preset scaffold sets them, with a larger train.lr"
        )
