"""Coordinate-wise median (Yin et al., ICML 2018, algorithm 1, option I; docs/algorithms/aggregation.md)."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from models.settings.section import Section
from tasks.server.aggregators import Aggregator, Combined, Mixing, TensorJob, sorted_values

if TYPE_CHECKING:
    from torch import Tensor

    from tasks.server.aggregators.received import Received

DESCRIPTION = "the median of each weight, unweighted (Yin et al., ICML 2018)"
USES_WEIGHTS = False


class Settings(Section):
    """The median has no settings."""


def median(values: "Sequence[Tensor]") -> "Tensor":
    """Return the median of each entry, float64; of an even number the mean of the two in the middle."""
    ordered, n = sorted_values(values), len(values)
    return (ordered[(n - 1) // 2].double() + ordered[n // 2].double()) / 2


class Median(Aggregator):
    """The median of every floating tensor; sample counts and other weights do not count."""

    def weigh(self, received: "Received") -> Mixing:
        """Return equal weights: the median uses none, the record shows who took part."""
        return received.equal()

    def combine(self, tensor: TensorJob) -> Combined:
        """Return the median of each entry."""
        return Combined(median(tensor.values))


def make(settings: Settings) -> Aggregator:
    """Return the aggregator."""
    del settings
    return Median()
