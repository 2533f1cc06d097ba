"""Geometric median by the smoothed Weiszfeld algorithm (Pillutla, Kakade and Harchaoui, IEEE TSP 2022, algorithm 2).

docs/algorithms/aggregation.md.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from pydantic import Field

from models.settings.section import Section
from tasks.server.aggregators import Aggregator, Mixing

if TYPE_CHECKING:
    from torch import Tensor

    from tasks.server.aggregators.received import Received

DESCRIPTION = "the geometric median of the models (RFA; Pillutla et al., IEEE TSP 2022)"


class Settings(Section):
    """When Weiszfeld's algorithm ends."""

    smoothing: float = Field(
        1e-6, gt=0, description="Distances below nu count as nu; the paper's value. A very large one gives the mean."
    )
    iterations: int = Field(20, ge=1, description="Most iterations; each reads all updates once. The paper uses 3.")
    tolerance: float = Field(1e-6, ge=0, description="End when the objective changes by less than this share.")


def weiszfeld_weights(
    blocks: "Callable[[], Iterable[Tensor]]",
    prior: Sequence[float],
    smoothing: float,
    iterations: int,
    tolerance: float,
    from_zero: bool,
) -> list[float]:
    """Return the weights w_i, summing to 1, whose mean of the points is their smoothed geometric median.

    Every iteration sets w_i proportional to p_i / max(nu, |x_i - z|) for z = sum_j w_j x_j of the iteration before.

    Args:
        blocks: Begins a pass over the points: float64 [N, P] for one range of coordinates after the other.
        prior: p_i.
        smoothing: nu.
        iterations: Most iterations.
        tolerance: The end, as a share of sum_i p_i |x_i - z|.
        from_zero: Begin at z = 0 instead of the weighted mean; a single huge point then counts little from the start.
    """
    import torch

    p = torch.tensor(prior, dtype=torch.float64)
    weights = torch.zeros_like(p) if from_zero else p
    before = math.inf
    for _ in range(iterations):
        squares = torch.zeros_like(p)
        for block in blocks():
            squares += (block - weights @ block).square().sum(1)
        distances = squares.sqrt()
        weights = p / distances.clamp(min=smoothing)
        weights = weights / weights.sum()
        objective = float(p @ distances)
        if abs(before - objective) <= tolerance * objective:
            break
        before = objective
    return [float(w) for w in weights]


class GeometricMedian(Aggregator):
    """The mean with Weiszfeld's weights, found on the parameters and used for all tensors."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    def weigh(self, received: "Received") -> Mixing:
        """Return Weiszfeld's weights."""
        s = self.settings
        weights = weiszfeld_weights(
            received.parameters, received.weights, s.smoothing, s.iterations, s.tolerance, received.start is not None
        )
        return Mixing(("global",), (weights,))


def make(settings: Settings) -> Aggregator:
    """Return the aggregator."""
    return GeometricMedian(settings)
