"""Adaptive server optimisers (Reddi et al., ICLR 2021, algorithm 2; docs/algorithms/aggregation.md).

What FedAdagrad, FedAdam and FedYogi share; they differ in the second moment.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from pydantic import Field

from models.settings.section import Section
from tasks.server.aggregators import Aggregator, Combined, TensorJob, start_of

if TYPE_CHECKING:
    from torch import Tensor

SecondMoment = Callable[["Tensor", "Tensor"], "Tensor"]  # (v, change) -> v


class AdaptiveSettings(Section):
    """What the three have in common."""

    lr: float = Field(0.01, gt=0, description="Server learning rate eta; tune it, the paper tries 0.001 to 10.")
    beta1: float = Field(0.9, ge=0, lt=1, description="Decay of the first moment.")
    tau: float = Field(
        1e-3, gt=0, description="Added to the root of the second moment, which begins at tau^2; the paper's default."
    )


def adaptive_step(start: "Tensor", moment: "Tensor", second: "Tensor", lr: float, tau: float) -> "Tensor":
    """Return x + lr m / (sqrt(v) + tau), float64, without bias correction as in the paper."""
    return start + lr * moment / (second.sqrt() + tau)


class Adaptive(Aggregator):
    """Parameters by ``adaptive_step`` with the mean change of the clients; buffers are averaged.

    Args:
        settings: Learning rate, beta1 and tau.
        second_moment: The rule for v.
    """

    def __init__(self, settings: AdaptiveSettings, second_moment: SecondMoment) -> None:
        self.settings, self.second_moment = settings, second_moment

    def combine(self, tensor: TensorJob) -> Combined:
        """Return the step of a parameter, the mean of a buffer."""
        import torch

        mean, s = self.average(tensor), self.settings
        if tensor.spec.kind != "parameter":
            return Combined(mean)
        start = start_of(tensor).double()
        change = mean - start
        moment, second = torch.zeros_like(mean), torch.full_like(mean, s.tau**2)
        if tensor.before:
            moment, second = tensor.before["first_moment"].double(), tensor.before["second_moment"].double()
        moment = s.beta1 * moment + (1 - s.beta1) * change
        second = self.second_moment(second, change)
        new = adaptive_step(start, moment, second, s.lr, s.tau)
        return Combined(new, {"first_moment": moment.float(), "second_moment": second.float()})
