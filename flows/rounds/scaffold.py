"""SCAFFOLD, stochastic controlled averaging: Karimireddy et al., ICML 2020, algorithm 1; specification 4.10."""

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from models.base_settings import Section
from models.errors import UserError
from tasks.client.terms import TermSpec
from tasks.records import ModelRef

if TYPE_CHECKING:
    from flows.federation import Federation

TITLE = "SCAFFOLD: control variates correct each client's drift (Karimireddy et al., ICML 2020)"


class Settings(Section):
    """What SCAFFOLD minimises; the server's step size is 1."""

    weighting: Literal["uniform", "size"] = Field(
        "uniform", description="uniform: the plain mean of the clients' losses, as published; size: by image count."
    )


def run_round(fed: "Federation", start: ModelRef) -> ModelRef:
    """One round: training with g - c_i + c, then W += mean(theta_i - W) and c += (1/n) sum(c_i_new - c_i)."""
    _need_plain_sgd(fed)
    clients = fed.sample()
    control = TermSpec("control")
    updates = fed.train(
        clients, start, stage=1, name="local training", guides=[start], term=control, shared=fed.server_state
    )

    sizes = fed.clients if fed.method.weighting == "size" else dict.fromkeys(fed.clients, 1)
    answered = sum(sizes[u.client] for u in updates)
    weights = [sizes[u.client] / answered for u in updates]  # among the participants
    shares = [sizes[u.client] / sum(sizes.values()) for u in updates]  # among all clients
    models, samples, steps = [u.model for u in updates], [u.samples for u in updates], [u.steps for u in updates]
    model, fed.server_state = fed.server_task(
        "control-step", models, samples, steps, start, fed.server_state, weights, shares, name="step and control"
    )
    fed.record.weights = {u.client: weight for u, weight in zip(updates, weights, strict=True)}
    return model


def _need_plain_sgd(fed: "Federation") -> None:
    """Control variates are mean gradients only for SGD without momentum and clipping.

    Raises:
        UserError: If something else is set.
    """
    train = fed.context.train
    found = {"optimizer": train.optimizer, "momentum": train.momentum, "grad_clip": train.grad_clip}
    if found != {"optimizer": "sgd", "momentum": 0, "grad_clip": None}:
        raise UserError(
            "SCAFFOLD needs plain SGD: its control variates are mean gradients",
            where="train",
            expected="optimizer sgd, momentum 0, grad_clip null",
            found=", ".join(f"{key} {value}" for key, value in found.items()),
            hint="--set train.optimizer=sgd --set train.grad_clip=null --set train.lr=0.05",
        )
