"""FedYogi (Reddi et al., ICLR 2021, algorithm 2; docs/algorithms/aggregation.md)."""

from functools import partial
from typing import TYPE_CHECKING

from pydantic import Field

from tasks.server.aggregators import Aggregator
from tasks.server.aggregators.adaptive import Adaptive, AdaptiveSettings

if TYPE_CHECKING:
    from torch import Tensor

DESCRIPTION = "server Yogi (FedYogi; Reddi et al., ICLR 2021)"


class Settings(AdaptiveSettings):
    """The server's Yogi."""

    beta2: float = Field(0.99, ge=0, lt=1, description="How slowly the second moment follows.")


def controlled(second: "Tensor", change: "Tensor", beta2: float) -> "Tensor":
    """Return v - (1 - beta2) change^2 sign(v - change^2): v moves towards change^2 by a bounded step."""
    square = change.square()
    return second - (1 - beta2) * square * (second - square).sign()


def make(settings: Settings) -> Aggregator:
    """Return the aggregator."""
    return Adaptive(settings, partial(controlled, beta2=settings.beta2))
