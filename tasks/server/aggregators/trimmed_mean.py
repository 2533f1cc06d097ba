"""Coordinate-wise trimmed mean (Yin et al., ICML 2018, algorithm 1, option II; docs/algorithms/aggregation.md)."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pydantic import Field

from models.errors import UserError
from models.settings.section import Section
from tasks.server.aggregators import Aggregator, Combined, Mixing, TensorJob, sorted_values

if TYPE_CHECKING:
    from torch import Tensor

    from tasks.server.aggregators.received import Received

DESCRIPTION = "the mean of each weight without the extremes, unweighted (Yin et al., ICML 2018)"
USES_WEIGHTS = False


class Settings(Section):
    """How many extreme values are left out."""

    trim: float = Field(
        0.2,
        ge=0,
        lt=0.5,
        description="Share of the clients left out at each end, per weight, rounded down; at least the share of "
        "attackers.",
    )


def trimmed(trim: float, clients: int) -> int:
    """Return how many values are left out at each end: the share rounded down, as in SciPy's ``trim_mean``."""
    return int(trim * clients + 1e-9)  # 0.29 * 100 is a little under 29


def trimmed_mean(values: "Sequence[Tensor]", count: int) -> "Tensor":
    """Return the mean of each entry without its ``count`` smallest and largest values, float64.

    With 0 it is the unweighted mean, summed in client order.
    """
    from tasks.server.aggregation import weighted_mean

    n = len(values)
    if count == 0:
        return weighted_mean(values, [1 / n] * n)
    kept = sorted_values(values)[count : n - count]
    return weighted_mean(list(kept), [1 / len(kept)] * len(kept))


class TrimmedMean(Aggregator):
    """The trimmed mean of every floating tensor; sample counts and other weights do not count."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    def weigh(self, received: "Received") -> Mixing:
        """Return equal weights: the record shows who took part.

        Raises:
            UserError: If so few clients reported that nobody would be left out.
        """
        try:
            check(self.settings, len(received.updates))
        except ValueError as error:
            raise UserError(str(error), where="aggregation", hint="raise federation.quorum") from error
        return received.equal()

    def combine(self, tensor: TensorJob) -> Combined:
        """Return the trimmed mean of each entry."""
        return Combined(trimmed_mean(tensor.values, trimmed(self.settings.trim, len(tensor.values))))


def check(settings: Settings, participants: int | None) -> None:
    """Refuse a share that leaves nobody out.

    Raises:
        ValueError: If the share of the participants is less than one client.
    """
    if participants is not None and settings.trim > 0 and trimmed(settings.trim, participants) == 0:
        raise ValueError(
            f"aggregation.trimmed_mean.trim {settings.trim} of {participants} updates leaves nobody out: set it "
            f"to at least {1 / participants:.3g}, or to 0 for the unweighted mean"
        )


def make(settings: Settings) -> Aggregator:
    """Return the aggregator."""
    return TrimmedMean(settings)
