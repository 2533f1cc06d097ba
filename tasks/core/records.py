"""The small records that tasks take and return. References travel, tensors don't."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import TypeAdapter

from tasks.core.former_names import current_metric_names, current_round_state
from tasks.core.model_ref import ModelRef
from tasks.core.record_reading import ROUND_VERSION, VERSION, read_record
from tasks.core.round_state import RoundState

__all__ = ["VERSION", "Dropped", "ModelRef", "RoundRecord", "RoundState", "StageLog", "Update", "read_round"]


@dataclass(frozen=True)
class Update:
    """What a client sends back after local training.

    Attributes:
        client: The client's id.
        model: The trained weights.
        samples: Training images of the client, M_i of the papers; the averaging weight.
        steps: Optimiser steps done.
        sums: For each reported loss term (sum, weight); the mean is sum / weight.
        seconds: Wall seconds of the training.
        state: The client's own state for its next round, if its method keeps one.
        compressed_bytes: Bytes of the weights as they travel, if they are compressed.
    """

    client: str
    model: ModelRef
    samples: int
    steps: int
    sums: dict[str, tuple[float, float]]
    seconds: float
    state: ModelRef | None = None
    compressed_bytes: int | None = None

    @property
    def bytes_up(self) -> int:
        """Return the bytes of the weights that travel to the server."""
        return self.model.bytes if self.compressed_bytes is None else self.compressed_bytes

    def mean(self, term: str) -> float:
        """Return the mean of one loss term, NaN if nothing was counted."""
        total, weight = self.sums.get(term, (0.0, 0.0))
        return total / weight if weight else float("nan")

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return _plain(self)

    @classmethod
    def of(cls, value: Mapping[str, Any]) -> "Update":
        """Return the record that ``as_dict`` was called on."""
        update: Update = read_record(_ADAPTERS[cls.__name__], value, "the update")
        return update


@dataclass(frozen=True)
class Dropped:
    """A client whose update did not count in a stage, and why."""

    client: str
    stage: int
    reason: str


@dataclass
class StageLog:
    """What one stage of a round cost.

    Attributes:
        name: The stage's descriptive name.
        seconds: Wall seconds.
        bytes_down: Bytes sent to clients, equal models sent to one client counted once.
        bytes_down_naive: The same with every copy counted, as the paper sends them.
        bytes_up: Bytes sent by clients.
        clients: Number of clients that completed the stage.
    """

    name: str
    seconds: float = 0.0
    bytes_down: int = 0
    bytes_down_naive: int = 0
    bytes_up: int = 0
    clients: int = 0


@dataclass
class RoundRecord:
    """Everything that is kept of a finished round; ``rounds/NNNN/round.json`` holds it.

    Attributes:
        round: 1-based number.
        state: All that the next round starts from: models, and what clients and server keep.
        participants: Clients sampled for the round.
        updates: The updates that counted, per stage number.
        dropped: Clients that did not count, with the reason.
        stages: Cost per stage, in order.
        weights: Client id -> weight in the last average.
        metrics: Metrics of the round's models on the pooled test set, flat name -> number.
        per_class: Class -> {ap, precision, recall, f1, support, prevalence}.
        per_site: Site -> {macro_ap, micro_ap, ..., images}.
        per_client: Client -> the metrics on its own test images, or of its own model; empty where there are neither.
        confusion: Test images by class (rows) and predicted class (columns), for single labels and one global model.
        notes: What deviated from the plan, in plain words.
    """

    round: int
    state: RoundState
    participants: list[str] = field(default_factory=list)
    updates: dict[int, list[Update]] = field(default_factory=dict)
    dropped: list[Dropped] = field(default_factory=list)
    stages: list[StageLog] = field(default_factory=list)
    weights: dict[str, float] = field(default_factory=dict)
    metrics: dict[str, float] = field(default_factory=dict)
    per_class: dict[str, dict[str, float]] = field(default_factory=dict)
    per_site: dict[str, dict[str, float]] = field(default_factory=dict)
    per_client: dict[str, dict[str, float]] = field(default_factory=dict)
    confusion: list[list[int]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def model(self) -> ModelRef:
        """The global model."""
        return self.state.global_model

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return _plain(self) | {"version": ROUND_VERSION}

    @classmethod
    def of(cls, value: Mapping[str, Any]) -> "RoundRecord":
        """Return the record that ``as_dict`` was called on, by this or an earlier release."""
        record: RoundRecord = read_record(_ADAPTERS[cls.__name__], current_round_state(value), "the record")
        return record


_ADAPTERS: dict[str, "TypeAdapter[Any]"] = {kind.__name__: TypeAdapter(kind) for kind in (Update, RoundRecord)}


def _plain(record: Any) -> dict[str, Any]:
    return {"version": VERSION, **_ADAPTERS[type(record).__name__].dump_python(record)}


def read_round(value: Mapping[str, Any], number: int) -> RoundRecord:
    """Return the record of round ``number`` from what its file holds.

    Raises:
        ValueError: In one line: what is wrong.
    """
    record = RoundRecord.of(current_metric_names(value))
    if record.round != number:
        raise ValueError(f"the record is of round {record.round}")
    return record
