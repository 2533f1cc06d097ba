"""FedAdagrad (Reddi et al., ICLR 2021, algorithm 2; docs/algorithms/aggregation.md)."""

from typing import TYPE_CHECKING

from pydantic import Field

from tasks.server.aggregators import Aggregator
from tasks.server.aggregators.adaptive import Adaptive, AdaptiveSettings

if TYPE_CHECKING:
    from torch import Tensor

DESCRIPTION = "server Adagrad (FedAdagrad; Reddi et al., ICLR 2021)"


class Settings(AdaptiveSettings):
    """The server's Adagrad; the paper's experiments use no momentum."""

    lr: float = Field(0.1, gt=0, description="Server learning rate eta; tune it, the paper tries 0.001 to 10.")
    beta1: float = Field(0.0, ge=0, lt=1, description="Decay of the first moment; 0 as in the paper's experiments.")


def summed(second: "Tensor", change: "Tensor") -> "Tensor":
    """Return v + change^2."""
    return second + change.square()


def make(settings: Settings) -> Aggregator:
    """Return the aggregator."""
    return Adaptive(settings, summed)
