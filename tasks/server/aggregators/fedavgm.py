"""Server SGD with momentum (Hsu et al., arXiv 1909.06335; Reddi et al., ICLR 2021; docs/algorithms/aggregation.md)."""

from typing import TYPE_CHECKING

from pydantic import Field

from models.settings.section import Section
from tasks.server.aggregators import Aggregator, Combined, TensorJob, start_of

if TYPE_CHECKING:
    from torch import Tensor

DESCRIPTION = "server SGD with momentum (FedAvgM; Hsu et al., arXiv 1909.06335)"


class Settings(Section):
    """The server's SGD; learning rate 1 without momentum is the mean."""

    lr: float = Field(1.0, gt=0, description="Server learning rate.")
    momentum: float = Field(0.9, ge=0, lt=1, description="Momentum beta; the paper tries 0.7 to 0.997.")


def momentum_step(
    start: "Tensor", mean: "Tensor", velocity: "Tensor", lr: float, momentum: float
) -> "tuple[Tensor, Tensor]":
    """Return x + lr v' and v' = momentum v + (mean - x), all float64 of one shape.

    The new model is written as (1 - lr) x + lr mean + lr momentum v, so that lr 1 without momentum is the mean exactly.
    """
    new = (1 - lr) * start + lr * mean + lr * momentum * velocity
    return new, momentum * velocity + (mean - start)


class ServerMomentum(Aggregator):
    """Parameters by ``momentum_step``; buffers are averaged."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    def combine(self, tensor: TensorJob) -> Combined:
        """Return the step of a parameter, the mean of a buffer."""
        import torch

        mean = self.average(tensor)
        if tensor.spec.kind != "parameter":
            return Combined(mean)
        start = start_of(tensor).double()
        velocity = tensor.before["momentum"].double() if tensor.before else torch.zeros_like(mean)
        new, velocity = momentum_step(start, mean, velocity, self.settings.lr, self.settings.momentum)
        return Combined(new, {"momentum": velocity.float()})


def make(settings: Settings) -> Aggregator:
    """Return the aggregator."""
    return ServerMomentum(settings)
