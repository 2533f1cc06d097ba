"""What is read from the curve of a metric by round, in percent; NaN where a round was not evaluated."""

import itertools
import math
import statistics
from collections.abc import Callable, Sequence
from typing import Literal

Statistic = Literal["last", "best", "best_round", "plateau_round", "roughness"]

PLATEAU = 5  # last evaluated rounds whose mean is the plateau
NEAR = 0.5  # points below the plateau that count as having reached it


def last(curve: Sequence[float]) -> float:
    """Return the value of the last evaluated round; NaN without one."""
    return next((value for value in reversed(curve) if math.isfinite(value)), math.nan)


def best(curve: Sequence[float]) -> float:
    """Return the highest value; NaN without one."""
    return max((value for value in curve if math.isfinite(value)), default=math.nan)


def best_round(curve: Sequence[float]) -> float:
    """Return the first round, from 1, that attains the highest value; NaN without one."""
    return rounds_until(curve, best(curve))


def plateau_round(curve: Sequence[float]) -> float:
    """Return the first round, from 1, within 0.5 points of the mean of the last five evaluated rounds.

    Unlike the round of the best value it does not follow the noise of a flat curve.
    """
    finite = [value for value in curve if math.isfinite(value)]
    return rounds_until(curve, statistics.fmean(finite[-PLATEAU:]) - NEAR) if finite else math.nan


def roughness(curve: Sequence[float]) -> float:
    """Return the standard deviation (divisor n - 1) of the changes between evaluated rounds of the last half.

    NaN with fewer than two changes.
    """
    finite = [value for value in curve[len(curve) // 2 :] if math.isfinite(value)]
    changes = [after - before for before, after in itertools.pairwise(finite)]
    return statistics.stdev(changes) if len(changes) > 1 else math.nan


def rounds_until(curve: Sequence[float], target: float) -> float:
    """Return the first round, from 1, whose value reaches the target; NaN if none does."""
    return next((float(number) for number, value in enumerate(curve, 1) if value >= target), math.nan)


STATISTICS: dict[Statistic, Callable[[Sequence[float]], float]] = {
    "last": last,
    "best": best,
    "best_round": best_round,
    "plateau_round": plateau_round,
    "roughness": roughness,
}
