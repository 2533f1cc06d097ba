"""Which models come out of an aggregation, and the weight of every update in each."""

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, overload

if TYPE_CHECKING:
    from torch import Tensor


class SparseRow(Sequence[float]):
    """A row of N weights of which only those above 0 are stored.

    Args:
        size: N.
        positions: Where they are, ascending.
        weights: The weights, in that order.
    """

    def __init__(self, size: int, positions: Iterable[int], weights: Iterable[float]) -> None:
        self.size, self.positions, self.weights = size, array("i", positions), array("d", weights)
        assert len(self.positions) == len(self.weights)

    def __len__(self) -> int:
        return self.size

    @overload
    def __getitem__(self, index: int) -> float: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[float]: ...

    def __getitem__(self, index: int | slice) -> float | Sequence[float]:
        if isinstance(index, slice):
            return [self[k] for k in range(*index.indices(self.size))]
        if not -self.size <= index < self.size:
            raise IndexError(index)
        index %= self.size
        place = bisect_left(self.positions, index)
        found = place < len(self.positions) and self.positions[place] == index
        return self.weights[place] if found else 0.0


Row = Sequence[float]  # N weights


def positive(row: Row) -> list[int]:
    """Return the positions of the weights above 0, ascending."""
    if isinstance(row, SparseRow):
        return [position for position, weight in zip(row.positions, row.weights, strict=True) if weight > 0]
    return [position for position, weight in enumerate(row) if weight > 0]


def count_positive(row: Row) -> int:
    """Return the number of weights above 0."""
    return sum(weight > 0 for weight in stored_weights(row))


def as_matrix(rows: Sequence[Row]) -> "Tensor":
    """Return rows of N weights as one matrix, float64 [M, N]."""
    import torch

    if not any(isinstance(row, SparseRow) for row in rows):
        return torch.tensor(rows, dtype=torch.float64)
    full = torch.zeros(len(rows), len(rows[0]), dtype=torch.float64)
    for out, row in zip(full, rows, strict=True):
        places = positive(row)
        out[places] = torch.tensor([row[place] for place in places], dtype=torch.float64)
    return full


def stored_weights(row: Row) -> Sequence[float]:
    """Return the weights of a row, of a sparse one without its zeros."""
    return row.weights if isinstance(row, SparseRow) else row


@dataclass(frozen=True)
class Mixing:
    """What the first phase of an aggregation decides.

    Attributes:
        outputs: Names of the M models: ``global``, ``cluster/0``, ``client/<id>``.
        rows: Weights [M][N] of all tensors, each row non-negative with sum 1; any of them may be a ``SparseRow``.
        layers: Prefix of tensor names -> other weights [M][N] for those tensors; the longest prefix that fits wins.
        members: Name of a tensor -> name of its layer in ``layers``, whose names are then no prefixes; tensors that are
            not in it have ``rows``.
    """

    outputs: tuple[str, ...]
    rows: Sequence[Row]
    layers: Mapping[str, Sequence[Row]] = field(default_factory=dict)
    members: Mapping[str, str] = field(default_factory=dict)

    def rows_of(self, tensor: str) -> Sequence[Row]:
        """Return the weights [M][N] of a tensor."""
        if self.members:
            return self.layers[self.members[tensor]] if tensor in self.members else self.rows
        fitting = [prefix for prefix in self.layers if tensor.startswith(prefix)]
        return self.layers[max(fitting, key=len)] if fitting else self.rows
