"""Compression to 8-bit integers: a quarter of the bytes of an update."""

from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from models.settings.section import Section
from tasks.core.update_transforms import SentUpdate, Transformed
from tasks.core.update_transforms.compression import Changes, compress, encoding_of, parameters

if TYPE_CHECKING:
    from torch import Tensor

DESCRIPTION = "send the parameters' change in 8-bit integers with one scale for each tensor"
LEVELS = 127  # on each side of zero
SCALE_BYTES = 4  # of each tensor


class Settings(Section):
    """How a change is rounded, and whether what is lost is sent later."""

    name: Literal["int8"] = "int8"
    rounding: Literal["nearest", "stochastic"] = Field(
        "nearest",
        description="To the nearest level, or at random with the right mean (Alistarh et al., NeurIPS 2017).",
    )
    error_feedback: bool = Field(True, description="Add what was lost to the client's next update.")


def quantised(change: "Tensor", draws: "Tensor | None" = None) -> "Tensor":
    """Return a change [any shape] on the levels s q, with s = max |change| / 127 and q an integer in -127..127.

    Args:
        change: float32.
        draws: Uniform numbers in 0..1 of the same shape for stochastic rounding, floor(change / s + draw); ``None``:
            to nearest, ties to even.
    """
    import torch

    scale = change.abs().max() / LEVELS if change.numel() else change.sum()
    if scale == 0:
        return torch.zeros_like(change)
    levels = change / scale
    whole = torch.round(levels) if draws is None else torch.floor(levels + draws)
    return whole.clamp_(-LEVELS, LEVELS).to(torch.int8).float() * scale


def apply(settings: Settings, update: SentUpdate) -> Transformed:
    """Return the update with its change in 8-bit integers; buffers as they are."""
    import torch

    def lossy(changes: Changes) -> Changes:
        if settings.rounding == "nearest":
            return {name: quantised(change) for name, change in changes.items()}
        return {
            name: quantised(change, torch.rand(change.shape, generator=update.generator, device=change.device))
            for name, change in changes.items()
        }

    state, error = compress(update, lossy, settings.error_feedback)
    before = encoding_of(update)
    extra = before.extra_bytes + SCALE_BYTES * len(parameters(update))
    return Transformed(state, error, replace(before, value_bits=8, extra_bytes=extra))
