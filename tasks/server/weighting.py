"""The clients' weights in an average: sample counts, equal or changing ones, or by how often a client took part.

docs/algorithms/dynamic_weights.md and docs/algorithms/fedfreq.md. All of it is exact arithmetic: where sample counts or
participations are equal, the weights are those of the uniform mean to the last bit.
"""

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from types import MappingProxyType

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


def frequency_weights(
    counts: Sequence[int], mode: str = "complement", samples: Sequence[int] | None = None
) -> list[float]:
    """Return FedFreq's weights w_k = (1 - p_k) / (m - 1) of the m clients that reported (Zhang et al., IoT-J 2022).

    p_k = q_k / sum_j q_j over these clients. A single client has weight 1.

    Args:
        counts: q_k, the rounds in which a client took part, this one included: [m], at least 1 each.
        mode: complement: as above; inverse: in proportion to 1 / q_k.
        samples: Images n_k [m] by which the weights are multiplied before they are divided by their sum.

    Returns:
        [m], each rounded once.

    Raises:
        UserError: If there are samples and all are 0.
    """
    total, m = sum(counts), len(counts)
    if mode == "inverse":
        values = [Fraction(1, q) for q in counts]
    else:
        values = [(1 - Fraction(q, total)) / (m - 1) for q in counts] if m > 1 else [Fraction(1)]
    if samples is not None:
        values = [value * n for value, n in zip(values, samples, strict=True)]
    whole = sum(values)
    if not whole:
        raise UserError(
            "no client that reported has images", where="aggregation.weighting.times_samples", found=samples
        )
    return [float(value / whole) for value in values]


def round_weights(
    settings: WeightingSettings,
    sizes: Mapping[str, int],
    reported: Sequence[str],
    round_: int,
    participations: Mapping[str, int] = MappingProxyType({}),
    samples: Mapping[str, int] = MappingProxyType({}),
) -> tuple[float, ...] | None:
    """Return the weights of a round's updates, in the order of ``reported``; ``None`` for sample counts.

    Args:
        settings: The weighting.
        sizes: Training images of all clients.
        reported: Clients whose updates are averaged.
        round_: The round, from 1.
        participations: fedfreq: client -> rounds in which it took part, this one included.
        samples: fedfreq with ``times_samples``: client -> images that its update reports.
    """
    if settings.name == "samples":
        return None
    if settings.name == "uniform":
        return (1 / len(reported),) * len(reported)
    if settings.name == "fedfreq":
        counts = [participations[client] for client in reported]
        images = [samples[client] for client in reported] if settings.times_samples else None
        return tuple(frequency_weights(counts, settings.mode, images))
    assert settings.horizon is not None, "checked with the settings"
    share = progress(settings.schedule, settings.horizon, round_)
    return tuple(dynamic_weights(sizes, reported, share, settings.start, settings.end))
