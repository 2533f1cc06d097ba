"""Compression to the largest changes: the others stay as they were."""

from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from models.settings.section import Section
from tasks.core.update_transforms import SentUpdate, Transformed
from tasks.core.update_transforms.compression import Changes, compress, encoding_of, parameters

if TYPE_CHECKING:
    from torch import Tensor

DESCRIPTION = "send only the largest changes of all parameters (Aji and Heafield, EMNLP 2017)"
INDEX_BITS = 32


class Settings(Section):
    """How many changes are sent, and whether the others are sent later."""

    name: Literal["topk"] = "topk"
    fraction: float = Field(gt=0, le=1, description="Share of the parameters whose change is sent.")
    error_feedback: bool = Field(True, description="Add what was not sent to the client's next update.")


def entries_sent(fraction: float, entries: int) -> int:
    """Return how many of the entries are sent: the share, rounded, at least one."""
    return min(entries, max(1, round(fraction * entries)))


def largest(values: "Tensor", count: int) -> "Tensor":
    """Return the ``count`` entries of ``values`` [n] of largest magnitude, zero elsewhere; of equals the first."""
    import torch

    size = values.abs()
    limit = size.kthvalue(len(values) - count + 1).values
    kept = size > limit
    equal = torch.nonzero(size == limit).squeeze(1)
    kept[equal[: count - int(kept.sum())]] = True
    return torch.where(kept, values, 0.0)


def apply(settings: Settings, update: SentUpdate) -> Transformed:
    """Return the update with all but the largest changes undone; buffers as they are."""
    import torch

    total = sum(update.state[name].numel() for name in parameters(update))
    count = entries_sent(settings.fraction, total)

    def lossy(changes: Changes) -> Changes:
        kept = largest(torch.cat([change.flatten() for change in changes.values()]), count)
        parts = kept.split([change.numel() for change in changes.values()])
        return {name: part.view_as(changes[name]) for name, part in zip(changes, parts, strict=True)}

    state, error = compress(update, lossy, settings.error_feedback)
    before = encoding_of(update)
    # Positions are indices or, if that is shorter, one bit for each parameter.
    positions = min(INDEX_BITS * count, total)
    return Transformed(state, error, replace(before, entries=min(count, before.entries), position_bits=positions))
