"""Summary statistics of a few numbers, over clients or over seeds; values that are not finite are left out."""

import math
import statistics
from collections.abc import Sequence

import numpy as np


def worst_decile(values: Sequence[float], low_is_worst: bool = False) -> float:
    """Average the highest tenth of the values (or the lowest), at least one of them; NaN if there is none."""
    finite = sorted((value for value in values if math.isfinite(value)), reverse=not low_is_worst)
    if not finite:
        return math.nan
    return float(np.mean(finite[: math.ceil(len(finite) / 10)]))


def distribution(values: Sequence[float], low_is_worst: bool = False) -> dict[str, float]:
    """Describe a population: mean, standard deviation (divisor n), worst decile, minimum, maximum and count.

    All but ``count`` are NaN without a finite value.
    """
    finite = [value for value in values if math.isfinite(value)]
    known = finite or [math.nan]
    return {
        "mean": float(np.mean(known)),
        "std": float(np.std(known)),
        "worst_decile": worst_decile(finite, low_is_worst),
        "min": min(known),
        "max": max(known),
        "count": float(len(finite)),
    }


def over_clients(values: Sequence[float], weights: Sequence[float], low_is_worst: bool) -> dict[str, float]:
    """Describe a metric over clients; values that are not finite are left out with their weights.

    ``mean``, ``weighted_mean``, ``std`` (divisor n - 1), ``p10``: the 10th percentile counted from the worst (for a
    loss the 90th), ``worst_decile``: the mean of the worst tenth, ``worst``, ``best``, ``count``.
    All but ``count`` are NaN without a finite value; ``std`` with fewer than two.
    """
    known = [(value, weight) for value, weight in zip(values, weights, strict=True) if math.isfinite(value)]
    finite = [value for value, _ in known]
    mean, std = mean_and_std(finite)
    total = sum(weight for _, weight in known)
    ends = (min(finite), max(finite)) if finite else (math.nan, math.nan)
    return {
        "mean": mean,
        "weighted_mean": sum(value * weight for value, weight in known) / total if total else math.nan,
        "std": math.nan if std is None else std,
        "p10": float(np.quantile(finite, 0.1 if low_is_worst else 0.9)) if finite else math.nan,
        "worst_decile": worst_decile(finite, low_is_worst),
        "worst": ends[0] if low_is_worst else ends[1],
        "best": ends[1] if low_is_worst else ends[0],
        "count": float(len(finite)),
    }


def mean_and_std(values: Sequence[float]) -> tuple[float, float | None]:
    """Return the mean and the sample standard deviation (divisor n - 1) of a sample, such as one value per seed.

    The mean is NaN without a finite value; the standard deviation is ``None`` with fewer than two.
    """
    finite = [value for value in values if math.isfinite(value)]
    if not finite:
        return math.nan, None
    return statistics.fmean(finite), statistics.stdev(finite) if len(finite) > 1 else None
