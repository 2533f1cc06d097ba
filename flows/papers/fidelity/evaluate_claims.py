"""Whether one row of a table beats another, seed by seed."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tasks.core.summary_statistics import mean_and_std

CONFIDENCE = 0.90  # two-sided, so each one-sided error is 5 %


@dataclass(frozen=True)
class Verdict:
    """A paired comparison.

    Attributes:
        differences: Winner minus loser, one per seed (and data set).
        mean: Their mean.
        low, high: Student's confidence interval of the mean; NaN with fewer than two pairs.
        mark: ``holds`` (the interval lies above 0), ``does not hold`` (below 0), ``undecided``.
    """

    differences: tuple[float, ...]
    mean: float
    low: float
    high: float
    mark: str


def judge(winner: Sequence[float], loser: Sequence[float], confidence: float = CONFIDENCE) -> Verdict:
    """Compares two rows over the same seeds.

    Args:
        winner: The figure of the row that should be better, one per seed.
        loser: The same of the other row, in the same order.
        confidence: Of the two-sided interval.

    Returns:
        The verdict. Pairs in which a figure is missing (NaN) do not count.
    """
    from scipy.stats import t

    pairs = [a - b for a, b in zip(winner, loser, strict=True) if math.isfinite(a) and math.isfinite(b)]
    count = len(pairs)
    mean, std = mean_and_std(pairs)
    if std is None:
        return Verdict(tuple(pairs), mean, math.nan, math.nan, "undecided")
    reach = float(t.ppf(0.5 + confidence / 2, count - 1)) * std / math.sqrt(count)
    low, high = mean - reach, mean + reach
    mark = "holds" if low > 0 else "does not hold" if high < 0 else "undecided"
    return Verdict(tuple(pairs), mean, low, high, mark)
