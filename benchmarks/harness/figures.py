"""Small calculations on the figures of repeated runs: a run is a mapping of figure -> value."""

import math
import statistics
from collections.abc import Mapping, Sequence

from benchmarks.harness.contestant import Metrics, Run, RunError

WARM_UP = 2  # rounds at the start that are not measured
NOT_MEASURED = WARM_UP + 1  # and the last one, which ``fedscene run`` evaluates


def per_round(run: Run, rounds: int, warm_up: int = WARM_UP) -> Metrics:
    """Return CPU seconds and wall seconds a round, the means over the rounds between warm-up and the last.

    Args:
        run: The stamped run.
        rounds: All rounds of the run.
        warm_up: Rounds at the start that are not measured.

    Raises:
        RunError: If a round's end was not seen.
    """
    return between(run, warm_up, rounds - 1)


def between(run: Run, first: int, last: int) -> Metrics:
    """Return CPU seconds and wall seconds a round, the means over the rounds after ``first`` up to ``last``.

    Raises:
        RunError: If the end of one of the two was not seen.
    """
    if missing := {first, last} - run.rounds.keys():
        raise RunError(f"no end of round {min(missing)} was seen")
    begin, end, count = run.rounds[first], run.rounds[last], last - first
    return {"cpu_s": (end.cpu - begin.cpu) / count, "wall_s": (end.wall - begin.wall) / count}


def median(runs: Sequence[Metrics], figure: str) -> float | None:
    """Return the median of a figure, ``None`` if no run has it."""
    found = [run[figure] for run in runs if figure in run]
    return statistics.median(found) if found else None


def ratio(a: Sequence[Metrics], b: Sequence[Metrics], figure: str) -> float | None:
    """Return the median of a's runs over the median of b's, ``None`` if one of them is missing or b's is 0."""
    top, bottom = median(a, figure), median(b, figure)
    return None if top is None or not bottom else top / bottom


def spread(runs: Sequence[Metrics], figure: str) -> tuple[float, float] | None:
    """Return the smallest and largest value of a figure, ``None`` if no run has it."""
    found = [run[figure] for run in runs if figure in run]
    return (min(found), max(found)) if found else None


def unequal(runs: Mapping[str, Sequence[Metrics]], reference: str, figure: str, tolerance: float) -> dict[str, float]:
    """Return the contestants whose figure is not the reference's, with the largest relative difference of a run.

    Args:
        runs: Contestant -> its runs.
        reference: The contestant that the others are compared with; its first run counts.
        figure: Which figure.
        tolerance: Largest relative difference that counts as equal.
    """
    if not runs.get(reference):
        return {}
    right = runs[reference][0][figure]
    found = {}
    for name, own in runs.items():
        differences = [abs(run[figure] - right) / abs(right) for run in own if figure in run]
        worst = max((math.inf if math.isnan(d) else d for d in differences), default=0.0)
        if worst > tolerance:
            found[name] = worst
    return found
