"""What the first phase of an aggregation may look at: all updates, their numbers and their tensors."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from tasks.core.records import Update
from tasks.core.state_schema import Schema, parameters_of
from tasks.core.state_stream import StateFile, ranges
from tasks.server.aggregators.mixing import Mixing

BLOCK = 1 << 23  # entries of all updates together that are in memory at once: 64 MB in float64


def entries_per_update(updates: int) -> int:
    """Return how many entries of each of ``updates`` tensors are read at once, so that memory stays flat."""
    return max(1, BLOCK // max(1, updates))


@dataclass(frozen=True)
class Received:
    """The updates of one aggregation.

    Attributes:
        updates: In client-id order.
        weights: Their prior weights, summing to 1: sample counts, or the method's.
        schema: What each tensor is.
        facts: Plain numbers of the method, for its own aggregator.
        files: The updates' tensors.
        start: The tensors of the model that they started from, if there is one.
    """

    updates: Sequence[Update]
    weights: Sequence[float]
    schema: Schema
    facts: Mapping[str, Any]
    files: Sequence[StateFile]
    start: StateFile | None

    def equal(self) -> Mixing:
        """Return equal weights for one model."""
        return Mixing(("global",), ([1 / len(self.updates)] * len(self.updates),))

    def parameters(self) -> Iterator[Tensor]:
        """Yield the trained parameters that updates contain, name by name in ranges of entries, each [N, P] float64.

        What clients keep for themselves is not among them. Of a model that the updates started from, the differences to
        it: their rounding errors are smaller.
        """
        import torch

        most = entries_per_update(len(self.files))
        for name in parameters_of(self.schema):
            if name not in self.files[0].entries:
                continue
            for start, stop in ranges(self.files[0].entries[name].numel, most):
                block = torch.empty(len(self.files), stop - start, dtype=torch.float64)
                for row, file in zip(block, self.files, strict=True):
                    row.copy_(file.read(name, start, stop))
                if self.start is not None:
                    block -= self.start.read(name, start, stop).double()
                yield block
