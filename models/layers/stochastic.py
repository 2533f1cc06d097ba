"""Stochastic modules: they draw from a given generator, never from PyTorch's global one.

Clients train in concurrent threads; with the global generator their numbers would depend on the schedule.
"""

from typing import Any

import torch
from torch import Tensor, nn


class StochasticModule(nn.Module):
    """Base of the modules that draw random numbers in training.

    Attributes:
        generator: Source of the numbers, on the device of the inputs; set it with ``use_generator``.
    """

    def __init__(self) -> None:
        super().__init__()
        self.generator: torch.Generator | None = None

    def source(self, x: Tensor) -> torch.Generator:
        """Return the generator, checked to be set and on the device of ``x``."""
        generator = self.generator
        assert generator is not None, "training mode without a generator: call use_generator first"
        assert generator.device.type == x.device.type, f"generator on {generator.device}, input on {x.device}"
        return generator

    def __getstate__(self) -> dict[str, Any]:
        # A copy (deepcopy of a prototype) starts without a generator: sharing one would couple the two models' draws.
        return {**super().__getstate__(), "generator": None}


class SeededDropout(StochasticModule):
    """Inverted dropout: zero with probability p and divide the rest by 1 - p; the identity in eval mode or at p = 0."""

    def __init__(self, p: float) -> None:
        super().__init__()
        assert 0.0 <= p < 1.0, f"dropout probability {p}"
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        """Return a tensor of the same shape."""
        if not self.training or self.p == 0.0:
            return x
        keep = torch.rand(self.dropped_together(x), generator=self.source(x), device=x.device) >= self.p
        return x * keep / (1.0 - self.p)  # divided last: 1 / (1 - p) rounded to bf16 would shift the mean

    def dropped_together(self, x: Tensor) -> torch.Size:
        """Return the shape of the random numbers, one for each value."""
        return x.shape


class SeededDropout2d(SeededDropout):
    """Dropout of whole channels of maps [B, D, h, w]."""

    def dropped_together(self, x: Tensor) -> torch.Size:
        """Return [B, D, 1, 1], one number for each channel of an image."""
        return torch.Size((*x.shape[:2], 1, 1))


def use_generator(model: nn.Module, generator: torch.Generator | None) -> None:
    """Let every stochastic module of ``model`` draw from ``generator``, which must be on the model's device."""
    for module in model.modules():
        if isinstance(module, StochasticModule):
            module.generator = generator
