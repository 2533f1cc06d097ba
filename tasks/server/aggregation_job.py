"""An aggregation as records: what goes in, and what comes out. Loads no tensor library."""

from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from hashlib import sha256
from typing import Any

from tasks.core.aggregator_spec import AggregatorSpec
from tasks.core.records import ModelRef, Update
from tasks.core.store import digest_of
from tasks.server.aggregators.mixing import Row, SparseRow, positive


@dataclass(frozen=True)
class AggregationJob:
    """What is aggregated, and how.

    Attributes:
        spec: The aggregator.
        updates: The updates; they are taken in client-id order.
        start: The model that they started from.
        weights: Prior weights in the order of ``updates``, summing to 1; ``None``: sample counts.
        rows: Model name -> weight of each update in it; ``None``: the aggregator decides.
        state: The aggregator's tensors of the previous round.
        facts: Plain numbers that a method's own aggregator needs.
        starts: The models that they started from, in the order of ``updates``, where each had its own.
    """

    spec: AggregatorSpec
    updates: tuple[Update, ...]
    start: ModelRef | None = None
    weights: tuple[float, ...] | None = None
    rows: Mapping[str, tuple[float, ...]] | None = None
    state: ModelRef | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)
    starts: tuple[ModelRef, ...] | None = None

    def in_client_order(self) -> "AggregationJob":
        """Return the same job with the updates in client-id order, and their weights with them."""
        order = sorted(range(len(self.updates)), key=lambda i: self.updates[i].client)
        if order == list(range(len(order))):
            return self

        def sort(values: Sequence[Any]) -> tuple[Any, ...]:
            return tuple(values[i] for i in order)

        rows = {name: sort(row) for name, row in self.rows.items()} if self.rows is not None else None
        weights = sort(self.weights) if self.weights is not None else None
        starts = sort(self.starts) if self.starts is not None else None
        return replace(self, updates=sort(self.updates), weights=weights, rows=rows, starts=starts)

    def output_name(self, fingerprint: str) -> str:
        """Return the digest of all inputs; where tensors are stored and how long training took does not matter."""
        updates = [[u.client, u.model.digest, u.samples, u.steps, u.sums] for u in self.updates]
        refs = [ref.digest if ref else None for ref in (self.start, self.state, *(self.starts or ()))]
        rows = self.rows and [(name, sha256(array("d", row)).hexdigest()) for name, row in self.rows.items()]
        return digest_of(fingerprint, asdict(self.spec), updates, refs, self.weights, rows, self.facts)[:32]


class WeightTable(Mapping[str, dict[str, float]]):
    """Model name -> client -> its weight, of the clients with one above 0; made when asked for.

    A thousand models of a thousand clients have a million weights, which take 8 MB here and 60 MB as dictionaries.

    Args:
        models: Names of the models.
        clients: Ids of the clients.
        rows: One row of weights per model.
    """

    def __init__(self, models: Sequence[str], clients: Sequence[str], rows: Sequence[Row]) -> None:
        self._clients = tuple(clients)
        self._rows = {
            model: row if isinstance(row, SparseRow) else array("d", row)
            for model, row in zip(models, rows, strict=True)
        }

    def __getitem__(self, model: str) -> dict[str, float]:
        row = self._rows[model]
        return {self._clients[position]: row[position] for position in positive(row)}

    def __iter__(self) -> Iterator[str]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)


@dataclass(frozen=True)
class Aggregated:
    """The result of an aggregation.

    Attributes:
        models: Name -> the new model.
        state: The aggregator's tensors for the next round, if it keeps some.
        weights: Model name -> client -> its weight, of the clients with one above 0.
        evaluated: Name of the model that is evaluated and exported.
        mixing: The weights between clients by layer, if the models are clients' (``tasks.server.mixing_record``).
    """

    models: dict[str, ModelRef]
    state: ModelRef | None
    weights: Mapping[str, dict[str, float]]
    evaluated: str = "global"
    mixing: ModelRef | None = None
