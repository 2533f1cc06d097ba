"""Whether one row of a table beats another, compared seed by seed."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from tasks.core.summary_statistics import mean_and_std

CONFIDENCE = 0.90  # two-sided, so each one-sided error is 5 %

Outcome = Literal["holds", "does not hold", "undecided"]


@dataclass(frozen=True)
class Verdict:
    """A paired comparison.

    Attributes:
        differences: Winner minus loser, one per seed (and data set).
        mean: Their mean.
        low: Lower bound of Student's confidence interval of the mean; NaN with fewer than two pairs.
        high: Upper bound.
        outcome: ``holds`` (the interval is above 0), ``does not hold`` (below 0), ``undecided``.
    """

    differences: tuple[float, ...]
    mean: float
    low: float
    high: float
    outcome: Outcome


def compare_pairs(winner: Sequence[float], loser: Sequence[float], confidence: float = CONFIDENCE) -> Verdict:
    """Compare two rows over the same seeds by a paired t-interval.

    Args:
        winner: The metric of the row that should be better, one value per seed.
        loser: The same of the other row, in the same order.
        confidence: Of the two-sided interval.

    Returns:
        The verdict. Pairs in which a value is missing (NaN) do not count.
    """
    from scipy.stats import t

    pairs = tuple(a - b for a, b in zip(winner, loser, strict=True) if math.isfinite(a) and math.isfinite(b))
    mean, std = mean_and_std(pairs)
    if std is None:
        return Verdict(pairs, mean, math.nan, math.nan, "undecided")
    error = std / math.sqrt(len(pairs))
    low, high = map(float, t.interval(confidence, len(pairs) - 1, loc=mean, scale=error)) if error else (mean, mean)
    outcome: Outcome = "holds" if low > 0 else "does not hold" if high < 0 else "undecided"
    return Verdict(pairs, mean, low, high, outcome)
