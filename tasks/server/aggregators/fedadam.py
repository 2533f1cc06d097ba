"""FedAdam (Reddi et al., ICLR 2021, algorithm 2; docs/algorithms/aggregation.md)."""

from functools import partial
from typing import TYPE_CHECKING

from pydantic import Field

from tasks.server.aggregators import Aggregator
from tasks.server.aggregators.adaptive import Adaptive, AdaptiveSettings

if TYPE_CHECKING:
    from torch import Tensor

DESCRIPTION = "server Adam (FedAdam; Reddi et al., ICLR 2021)"


class Settings(AdaptiveSettings):
    """The server's Adam."""

    beta2: float = Field(0.99, ge=0, lt=1, description="Decay of the second moment.")


def decayed(second: "Tensor", change: "Tensor", beta2: float) -> "Tensor":
    """Return beta2 v + (1 - beta2) change^2."""
    return beta2 * second + (1 - beta2) * change.square()


def make(settings: Settings) -> Aggregator:
    """Return the aggregator."""
    return Adaptive(settings, partial(decayed, beta2=settings.beta2))
