"""When a figure of ours agrees with published ones, and when a difference between two rows is a claim.

Published values of one cell differ by up to five points between careful reproductions, so a single number is no target.
"""

from collections.abc import Mapping, Sequence

SINGLE = 2.5  # half-width of a band around a single published value, points
LEAST = 1.0  # smallest half-width around several published values
STDS = 2.0  # our own standard deviations over seeds that widen it
CLAIM = 2.0  # a published margin must exceed this to be a claim about an ordering

Band = tuple[float, float]


def band(published: Sequence[float], own_std: float | None = None) -> Band:
    """Return [min - t, max + t] of the published values.

    Args:
        published: Published values of the cell, percent; at least one.
        own_std: Sample standard deviation of ours over the seeds, ``None`` with one seed.

    Returns:
        Lower and upper bound, both inside, within 0 to 100: t = 2.5 around a single value, else
        max(1.0, 2 x ``own_std``).
    """
    assert published, "a band needs a published value"
    margin = SINGLE if len(published) == 1 else max(LEAST, STDS * (own_std or 0.0))
    return max(min(published) - margin, 0.0), min(max(published) + margin, 100.0)


def inside(value: float, bounds: Band) -> bool:
    """Return whether a value agrees, to the two decimals that are printed."""
    return round(bounds[0], 2) <= round(value, 2) <= round(bounds[1], 2)


def published_margin(better: Mapping[str, float], worse: Mapping[str, float]) -> float | None:
    """Return the smallest published difference between two rows over the sources that have both; ``None`` without one.

    Args:
        better: Source -> published value of the row that should be better.
        worse: The same of the other row.
    """
    differences = [value - worse[source] for source, value in better.items() if source in worse]
    return min(differences, default=None)
