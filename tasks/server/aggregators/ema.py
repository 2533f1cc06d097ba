"""Exponential moving average of the global models (docs/algorithms/aggregation.md).

Clients go on from the mean; the moving average is the model that is evaluated and exported. It smooths rounds that
jump because other clients took part.
"""

from typing import TYPE_CHECKING

from pydantic import Field

from models.settings.section import Section
from tasks.server.aggregators import Aggregator, Combined, Mixing, TensorJob

if TYPE_CHECKING:
    from torch import Tensor

    from tasks.server.aggregators.received import Received

DESCRIPTION = "the mean, and a moving average of the rounds' models that is evaluated (EMA)"
AVERAGE = "ema"  # the second model


class Settings(Section):
    """How long the moving average remembers."""

    decay: float = Field(0.9, ge=0, lt=1, description="Share of the average that stays each round; 0: the mean.")


def moving_average(before: "Tensor | None", mean: "Tensor", decay: float) -> "Tensor":
    """Return decay before + (1 - decay) mean, float64; in the first round the mean."""
    return mean if before is None else decay * before.double() + (1 - decay) * mean


class MovingAverage(Aggregator):
    """Two models: the mean, and the moving average, which is the aggregator's own state as well."""

    evaluated = AVERAGE

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    def weigh(self, received: "Received") -> Mixing:
        """Return two models of the same weights."""
        return Mixing(("global", AVERAGE), (received.weights, received.weights))

    def combine(self, tensor: TensorJob) -> Combined:
        """Return the mean of one model, the moving average of the other; all floating tensors alike."""
        mean = self.average(tensor)
        if tensor.model != AVERAGE:
            return Combined(mean)
        average = moving_average(tensor.before.get(""), mean, self.settings.decay)
        return Combined(average, {"": average})


def make(settings: Settings) -> Aggregator:
    """Return the aggregator."""
    return MovingAverage(settings)
