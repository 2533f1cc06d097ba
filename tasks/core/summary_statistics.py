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


def mean_and_std(values: Sequence[float]) -> tuple[float, float | None]:
    """Return the mean and the sample standard deviation (divisor n - 1) of a sample, such as one value per seed.

    The mean is NaN without a finite value; the standard deviation is ``None`` with fewer than two.
    """
    finite = [value for value in values if math.isfinite(value)]
    if not finite:
        return math.nan, None
    return statistics.fmean(finite), statistics.stdev(finite) if len(finite) > 1 else None
