"""FedCor: correlations between clients choose who trains (Tang et al., CVPR 2022; docs/algorithms/fedcor.md).

Every round all clients report the loss of the global model on their own images, so the pool must be small and fixed.
"""

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from flows.methods import RunFacts
from models.base_settings import Section
from models.errors import UserError
from tasks.core.records import ModelRef, Update

if TYPE_CHECKING:
    from flows.federation.federation import Federation

DESCRIPTION = "FedCor: clients chosen by a Gaussian process over their losses (Tang et al., CVPR 2022)"


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


def run_round(fed: "Federation", start: ModelRef) -> ModelRef:
    """Collect all clients' losses, select clients by the process (at first at random), train, average."""
    s: Settings = fed.method
    count, split = check_clients(fed.settings.clients_per_round, len(fed.clients)), _split(fed)
    losses = _losses(fed, start, split, "losses of the global model")
    fed.server_state = fed.server_task(
        "fedcor-record-losses",
        fed.server_state,
        losses,
        fed.number,
        s.rank,
        fed.number <= s.warmup + 1,
        name="record client losses",
    )

    if fed.number <= s.warmup:
        clients = fed.sample()
    else:
        if fed.number == s.warmup + 1:
            _fit(fed, s.gp_steps, None)
        elif refreshes(s, fed.number):
            _fit(fed, s.gp_steps_later, _losses(fed, _probe(fed, start), split, "losses after probing"))
        ids = sorted(fed.clients)
        samples = [fed.clients[client] for client in ids]
        chosen, fed.server_state = fed.server_task(
            "fedcor-select", fed.server_state, samples, count, s.beta, name="select clients"
        )
        clients = fed.choose([ids[k] for k in chosen])

    # All clients received the global model for its losses, so it is not sent again.
    updates = fed.train(clients, start, stage=1, name="local training", already_at_client=True)
    return _mean(fed, updates, "average")


def refreshes(settings: Settings, number: int) -> bool:
    """Return whether a round after the one that follows the warm-up begins with a probing round.

    The paper's code does it at the end of its round e, counted from 0, where e > its warm-up and e % interval = 0. The
    next round, which starts from the same model, is number e + 2 here.
    """
    if settings.refresh == "multiples":
        return (number - 2) % settings.interval == 0
    return (number - settings.warmup - 1) % settings.interval == 0


def _probe(fed: "Federation", start: ModelRef) -> ModelRef:
    """Do a probing round of random clients; return its model, which only shows how losses change together."""
    from tasks.core.randomness import numpy_generator

    # The purpose is part of every seed: never changed.
    rng = numpy_generator(fed.context.seed, "FedCor throw-away clients", fed.number)
    count = check_clients(fed.settings.clients_per_round, len(fed.clients))
    sampled = sorted(rng.choice(sorted(fed.clients), size=count, replace=False).tolist())
    states = dict(fed.record.client_states)
    updates = fed.train(sampled, start, stage=2, name="probing training", already_at_client=True)
    model = _mean(fed, updates, "probing average")
    # Updates and client states of a probing round are dropped; bytes, seconds and drop-outs stay in the record.
    fed.record.client_states = states
    del fed.record.updates[2]
    fed.record.notes.append(f"probing round of {', '.join(sampled)}")
    return model


def _fit(fed: "Federation", steps: int, losses: list[float] | None) -> None:
    """Fit the Gaussian process, with the losses after a probing round if there was one."""
    s: Settings = fed.method
    options = {"steps": steps, "lr": s.gp_lr, "gamma": s.gamma, "group_size": s.group_size, "normalise": s.normalise}
    # The record's round: the one that follows, or the previous one as in the paper's code, which is one round older.
    number = fed.number - 1 if s.refresh == "multiples" else fed.number
    fed.server_state = fed.server_task(
        "fedcor-fit", fed.server_state, losses, number, options, name="fit the Gaussian process"
    )


def _mean(fed: "Federation", updates: list[Update], name: str) -> ModelRef:
    """Aggregate as ``aggregation`` says."""
    if fed.method.aggregation == "size":
        return fed.average(updates, name=f"weighted {name}")
    return fed.combine(updates, [1 / len(updates)] * len(updates), name=name)


def _losses(fed: "Federation", model: ModelRef, split: str, name: str) -> list[float]:
    """Return the model's loss at every client in id order, NaN where a client has no such images."""
    losses = fed.client_losses(model, name=name, split=split)
    without = [client for client in sorted(fed.clients) if not losses[client][1]]
    if without:
        fed.record.notes.append(f"{name}: no {split} images at {', '.join(without)}, so this round is not recorded")
    return [losses[client][0] for client in sorted(fed.clients)]


def _split(fed: "Federation") -> str:
    """Return the split that clients report on; note it where held-out images are missing."""
    title = f"round {fed.number}: find held-out images"
    split: str = fed.engine.run("find-held-out", title, fed.context, sorted(fed.clients), fed.method.loss_on)
    if fed.method.loss_on == "auto" and split == "train":
        fed.record.notes.append("not every client has val images, so losses are of the training images")
    return split


def check(facts: RunFacts) -> None:
    """Require fewer participants than clients.

    Raises:
        UserError: If all clients take part.
    """
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
