"""What the first phase of an aggregation may look at: all updates, their numbers and their tensors."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from models.errors import UserError
from tasks.core.records import Update
from tasks.core.state_schema import Schema, parameters_of
from tasks.core.state_stream import StateFile, ranges
from tasks.server.aggregators.mixing import Mixing

IN_CACHE = 1 << 20  # entries of all updates together in a small block: 8 MB in float64
MIN_RANGE = 1 << 14  # entries of one update that are read at once, however many there are
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
        starts: Those of each update's own start, where the method gave them.
    """

    updates: Sequence[Update]
    weights: Sequence[float]
    schema: Schema
    facts: Mapping[str, Any]
    files: Sequence[StateFile]
    start: StateFile | None
    starts: Sequence[StateFile] | None = None

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

    def blocks(self, names: Iterable[str], *, changes: bool = False) -> Iterator[Tensor]:
        """Yield the values of these tensors in ranges of entries, each [N, P] float64.

        Ranges are small, so that a block stays in the processor's cache while it is used.

        Args:
            names: Tensors that updates contain.
            changes: The differences to each update's own start instead.

        Raises:
            UserError: If differences are asked for and there are no starts.
        """
        import torch

        if changes and self.starts is None:
            raise UserError("the aggregator needs the model that each client started from", where="aggregation")
        count = len(self.files)
        for name in names:
            for start, stop in ranges(self.files[0].entries[name].numel, max(MIN_RANGE, IN_CACHE // count)):
                block = torch.empty(count, stop - start, dtype=torch.float64)
                for i, row in enumerate(block):
                    row.copy_(self.files[i].read(name, start, stop))
                    if changes and self.starts is not None:
                        row.sub_(self.starts[i].read(name, start, stop))
                yield block
