"""Which models come out of an aggregation, and the weight of every update in each."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Mixing:
    """What the first phase of an aggregation decides.

    Attributes:
        outputs: Names of the M models: ``global``, ``cluster/0``, ``client/<id>``.
        rows: Weights [M][N] of all tensors, each row non-negative with sum 1.
        layers: Prefix of tensor names -> other weights [M][N] for those tensors; the longest prefix that fits wins.
    """

    outputs: tuple[str, ...]
    rows: Sequence[Sequence[float]]
    layers: Mapping[str, Sequence[Sequence[float]]] = field(default_factory=dict)

    def rows_of(self, tensor: str) -> Sequence[Sequence[float]]:
        """Return the weights [M][N] of a tensor."""
        fitting = [prefix for prefix in self.layers if tensor.startswith(prefix)]
        return self.layers[max(fitting, key=len)] if fitting else self.rows
