"""FedCor's settings, and which runs they fit; docs/algorithms/fedcor.md."""

from typing import Literal

from pydantic import Field

from flows.methods.facts import RunFacts
from models.errors import UserError
from models.settings.section import Section


class Settings(Section):
    """FedCor's settings; the defaults are the paper's for FMNIST (CIFAR-10: 20, 50, 500, beta 0.9, gamma 0.99)."""

    warmup: int = Field(
        15,
        ge=2,
        description="First rounds, with randomly sampled clients; the Gaussian process is fitted before the next one. "
        "The paper's code counts rounds from 0 and samples in 0 to 15, which is 16 rounds.",
    )
    interval: int = Field(10, ge=1, description="Rounds between probing rounds, which measure the clients again.")
    refresh: Literal["after_warmup", "multiples"] = Field(
        "after_warmup",
        description="Probing rounds come every `interval` rounds from the end of the warm-up (before rounds 26, 36, "
        "...), or as in the paper's code before the rounds 2 above a multiple of it (22, 32, ...).",
    )
    rank: int = Field(15, ge=1, description="Rank of the clients' covariance.")
    group_size: int = Field(
        100,
        ge=1,
        description="Records older than the latest by more rounds are dropped (the name in the paper's code).",
    )
    beta: float = Field(0.95, gt=0, le=1, description="Discount of a client each time it was chosen.")
    gamma: float = Field(0.95, gt=0, le=1, description="Weight of a record that is one round older.")
    gp_steps: int = Field(1000, ge=1, description="Optimiser steps of the Gaussian process after the warm-up.")
    gp_steps_later: int = Field(100, ge=1, description="Optimiser steps after a probing round.")
    gp_lr: float = Field(1e-2, gt=0, le=1, description="Adam's learning rate for the Gaussian process.")
    normalise: bool = Field(
        True,
        description="Divide the losses' changes by their standard deviation in the warm-up: mean losses per label "
        "change far less than the process expects at first, about 1. The paper's code does not.",
    )
    aggregation: Literal["uniform", "size"] = Field(
        "uniform", description="uniform: the plain mean, as published; size: weighted by sample count."
    )
    loss_on: Literal["auto", "val", "train"] = Field(
        "auto", description="Local images on which a client reports its loss; auto: val if every client has some."
    )


def refreshes(settings: Settings, number: int) -> bool:
    """Return whether a round after the one that follows the warm-up begins with a probing round.

    The paper's code does it at the end of its round e, counted from 0, where e > its warm-up and e % interval = 0. The
    next round, which starts from the same model, is number e + 2 here.
    """
    if settings.refresh == "multiples":
        return (number - 2) % settings.interval == 0
    return (number - settings.warmup - 1) % settings.interval == 0


def check(facts: RunFacts) -> None:
    """Require fewer participants than clients, none of which are fixed.

    Raises:
        UserError: If all clients take part, or some must.
    """
    if facts.required:
        raise UserError(
            "FedCor selects the clients of a round itself, so none can be required",
            where="federation.required",
            expected="no client, or another method.name",
            found=", ".join(facts.required),
        )
    if facts.clients is not None:
        check_clients(facts.clients_per_round, facts.clients)


def check_clients(count: int | None, clients: int) -> int:
    """Return the number of clients per round.

    Args:
        count: ``federation.clients_per_round``.
        clients: Number of clients of the partition.

    Raises:
        UserError: If all clients take part, so there is nothing to select.
    """
    if count is None or count >= clients:
        raise UserError(
            "FedCor selects clients, but all take part",
            where="federation.clients_per_round",
            expected=f"fewer than the {clients} clients of the partition",
            found=count,
            hint="set it, or method.name to fedavg",
        )
    return count


def ACCEPTS_WEIGHTING(settings: Settings) -> bool:  # noqa: N802 - a constant for most methods
    """Return whether the average leaves its weights to ``aggregation.weighting``."""
    return settings.aggregation == "size"
