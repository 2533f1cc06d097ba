"""FedCor: correlations between clients choose who trains (Tang et al., CVPR 2022; specification 4.5).

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

TITLE = "FedCor: clients chosen by a Gaussian process over their losses (Tang et al., CVPR 2022)"


class Settings(Section):
    """FedCor's numbers; the defaults are the paper's for FMNIST (CIFAR-10: 20, 50, 500, beta 0.9, gamma 0.99)."""

    warmup: int = Field(
        15,
        ge=2,
        description="First rounds, whose clients are drawn uniformly; the process is trained before the next one. The "
        "paper's code counts rounds from 0 and draws in 0 to 15, so 16 is what it does.",
    )
    interval: int = Field(10, ge=1, description="Rounds between throw-away rounds, which measure the clients anew.")
    refresh: Literal["after_warmup", "multiples"] = Field(
        "after_warmup",
        description="Throw-away rounds come every `interval` rounds from the end of the warm-up (before rounds 26, 36, "
        "...), or where the paper's code has them: before the rounds 2 above a multiple of it (22, 32, ...).",
    )
    rank: int = Field(15, ge=1, description="Rank of the clients' covariance.")
    group_size: int = Field(100, ge=1, description="Records that are more rounds older than the latest are dropped.")
    beta: float = Field(0.95, gt=0, le=1, description="Discount of a client each time it was chosen.")
    gamma: float = Field(0.95, gt=0, le=1, description="Weight of a record that is one round older.")
    gp_steps: int = Field(1000, ge=1, description="Training steps of the process after the warm-up.")
    gp_steps_later: int = Field(100, ge=1, description="Training steps after a throw-away round.")
    gp_lr: float = Field(1e-2, gt=0, le=1, description="Adam's learning rate for the process.")
    normalise: bool = Field(
        True,
        description="Divide the losses' changes by their deviation in the warm-up: mean losses per label change far "
        "less than the process expects at first, which is about 1. The paper's code does not.",
    )
    aggregation: Literal["uniform", "size"] = Field(
        "uniform", description="uniform: the plain mean, as published; size: by image count."
    )
    loss_on: Literal["auto", "val", "train"] = Field(
        "auto", description="Own images that a client reports its loss on; auto: val if every client has some."
    )


def run_round(fed: "Federation", start: ModelRef) -> ModelRef:
    """One round: all clients report, the process chooses (at first the lot), the chosen train, their mean."""
    s: Settings = fed.method
    count, split = check_clients(fed.settings.clients_per_round, len(fed.clients)), _split(fed)
    losses = _losses(fed, start, split, "losses of the global model")
    fed.server_state = fed.server_task(
        "note-losses", fed.server_state, losses, fed.number, s.rank, fed.number <= s.warmup + 1, name="note losses"
    )

    if fed.number <= s.warmup:
        clients = fed.sample()
    else:
        if fed.number == s.warmup + 1:
            _learn(fed, s.gp_steps, None)
        elif refreshes(s, fed.number):
            _learn(fed, s.gp_steps_later, _losses(fed, _throw_away(fed, start), split, "losses after it"))
        ids = sorted(fed.clients)
        sizes = [fed.clients[client] for client in ids]
        chosen, fed.server_state = fed.server_task(
            "choose-clients", fed.server_state, sizes, count, s.beta, name="choose clients"
        )
        clients = fed.choose([ids[k] for k in chosen])

    # All clients were sent the global model for its losses, so it does not travel again.
    updates = fed.train(clients, start, stage=1, name="local training", references=[start], already_at_client=True)
    return _mean(fed, updates, "average")


def refreshes(settings: Settings, number: int) -> bool:
    """Whether a round after the one that follows the warm-up begins with a throw-away round.

    The paper's code has it at the end of its round e, counted from 0, where e > its warm-up and e % interval = 0. The
    next round, which starts from the same model, is number e + 2 here.
    """
    if settings.refresh == "multiples":
        return (number - 2) % settings.interval == 0
    return (number - settings.warmup - 1) % settings.interval == 0


def _throw_away(fed: "Federation", start: ModelRef) -> ModelRef:
    """A round of uniformly drawn clients that is no progress: its model only shows how losses change together."""
    from tasks.core.randomness import numpy_generator

    rng = numpy_generator(fed.context.seed, "FedCor throw-away clients", fed.number)
    count = check_clients(fed.settings.clients_per_round, len(fed.clients))
    drawn = sorted(rng.choice(sorted(fed.clients), size=count, replace=False).tolist())
    states = dict(fed.record.client_states)
    updates = fed.train(drawn, start, stage=2, name="throw-away training", references=[start], already_at_client=True)
    model = _mean(fed, updates, "throw-away average")
    # What the drawn clients did and keep belongs to no round; bytes, seconds and drop-outs stay in the record.
    fed.record.client_states = states
    del fed.record.updates[2]
    fed.record.notes.append(f"throw-away round of {', '.join(drawn)}")
    return model


def _learn(fed: "Federation", steps: int, losses: list[float] | None) -> None:
    """Trains the process, with the losses after a throw-away round if there was one."""
    s: Settings = fed.method
    how = {"steps": steps, "lr": s.gp_lr, "gamma": s.gamma, "group_size": s.group_size, "normalise": s.normalise}
    # Counted as the round that it comes before, or in the code's count as the one that it follows: one less of age.
    number = fed.number - 1 if s.refresh == "multiples" else fed.number
    fed.server_state = fed.server_task(
        "learn-correlations", fed.server_state, losses, number, how, name="learn correlations"
    )


def _mean(fed: "Federation", updates: list[Update], name: str) -> ModelRef:
    """The aggregation that is set."""
    if fed.method.aggregation == "size":
        return fed.average(updates, name=f"{name} by size")
    return fed.combine(updates, [1 / len(updates)] * len(updates), name=name)


def _losses(fed: "Federation", model: ModelRef, split: str, name: str) -> list[float]:
    """The model's loss at every client in id order, NaN where a client has no such images."""
    losses = fed.client_losses(model, name=name, split=split)
    without = [client for client in sorted(fed.clients) if not losses[client][1]]
    if without:
        fed.record.notes.append(f"{name}: no {split} images at {', '.join(without)}, so this round is no record")
    return [losses[client][0] for client in sorted(fed.clients)]


def _split(fed: "Federation") -> str:
    """Which images clients report on; a note where the held-out ones are missing."""
    title = f"round {fed.number}: find held-out images"
    split: str = fed.engine.run("find-held-out", title, fed.context, sorted(fed.clients), fed.method.loss_on)
    if fed.method.loss_on == "auto" and split == "train":
        fed.record.notes.append("not every client holds val images, so losses are of the training images")
    return split


def check(facts: RunFacts) -> None:
    """Fewer clients than there are must take part, as FedCor chooses them.

    Raises:
        UserError: If all take part.
    """
    if facts.clients is not None:
        check_clients(facts.clients_per_round, facts.clients)


def check_clients(count: int | None, clients: int) -> int:
    """Clients per round.

    Args:
        count: ``federation.clients_per_round``.
        clients: Those of the partition.

    Raises:
        UserError: If all take part, so that there is nothing to choose.
    """
    if count is None or count >= clients:
        raise UserError(
            "FedCor chooses clients, and all are to take part",
            where="federation.clients_per_round",
            expected=f"fewer than the {clients} clients of the partition",
            found=count,
            hint="set it, or method.name to fedavg",
        )
    return count
