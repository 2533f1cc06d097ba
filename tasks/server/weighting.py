"""The clients' weights in an average: sample counts, equal ones, or a change from one to the other over the rounds.

docs/algorithms/dynamic_weights.md. All of it is exact arithmetic: where the sample counts are equal, every schedule
gives the weights of the uniform mean to the last bit.
"""

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction

from models.errors import UserError
from tasks.core.weighting_settings import Schedule, WeightingSettings, Weights


def progress(schedule: Schedule, horizon: int, round_: int) -> Fraction:
    """Return r of round t = ``round_`` - 1, from 0 in round 1 to 1 from round ``horizon`` on.

    linear: r = min(1, t / (H - 1)); cosine: (1 - cos(pi r)) / 2 of that; step: 1 from round H on. With H = 1 r stays 0.
    """
    done = min(Fraction(1), Fraction(round_ - 1, horizon - 1)) if horizon > 1 else Fraction(0)
    if schedule == "step":
        return Fraction(math.floor(done))
    return done if schedule == "linear" else Fraction((1 - math.cos(math.pi * done)) / 2)


def shares(weights: Weights, sizes: Mapping[str, int]) -> dict[str, Fraction]:
    """Return each client's share, summing to 1: N_i / sum N, 1 / n, or in proportion to the numbers that are given.

    Raises:
        UserError: If no client has a weight above 0.
    """
    if weights == "uniform":
        values = dict.fromkeys(sizes, Fraction(1))
    else:
        given = sizes if isinstance(weights, str) else weights
        values = {client: Fraction(given[client]) for client in sizes}
    total = sum(values.values())
    if not total:
        raise UserError("no client has a weight above 0", where="aggregation.weighting", found=sorted(sizes))
    return {client: value / total for client, value in values.items()}


def dynamic_weights(
    sizes: Mapping[str, int],
    reported: Sequence[str],
    progress: Fraction,
    start: Weights = "samples",
    end: Weights = "uniform",
) -> list[float]:
    """Return W_i = (1 - r) a_i + r b_i of the clients that reported, divided by their sum.

    a and b are the shares among all clients with training images, so that the schedule depends on the round only,
    whoever takes part.

    Args:
        sizes: Training images N_i of all clients.
        reported: Clients whose updates are averaged.
        progress: r, from 0 to 1.
        start: The weights a at r = 0.
        end: The weights b at r = 1.

    Returns:
        One weight for each of ``reported``, each rounded once.

    Raises:
        UserError: If a client that reported has no training images, or all that did have weight 0.
    """
    training = {client: size for client, size in sizes.items() if size > 0}
    if unknown := [client for client in reported if client not in training]:
        raise UserError("a client without training images has no weight", where="aggregation.weighting", found=unknown)
    a, b = shares(start, training), shares(end, training)
    mixed = [(1 - progress) * a[client] + progress * b[client] for client in reported]
    total = sum(mixed)
    if not total:
        raise UserError(
            "no client that reported has a weight above 0", where="aggregation.weighting", found=list(reported)
        )
    return [float(weight / total) for weight in mixed]


def round_weights(
    settings: WeightingSettings, sizes: Mapping[str, int], reported: Sequence[str], round_: int
) -> tuple[float, ...] | None:
    """Return the weights of a round's updates, in the order of ``reported``; ``None`` for sample counts.

    Args:
        settings: The weighting.
        sizes: Training images of all clients.
        reported: Clients whose updates are averaged.
        round_: The round, from 1.
    """
    if settings.name == "samples":
        return None
    if settings.name == "uniform":
        return (1 / len(reported),) * len(reported)
    assert settings.horizon is not None, "checked with the settings"
    share = progress(settings.schedule, settings.horizon, round_)
    return tuple(dynamic_weights(sizes, reported, share, settings.start, settings.end))
