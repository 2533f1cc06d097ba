"""The small records that tasks take and return. References travel, tensors don't.

Records on disk outlive the code that wrote them. A field that one of them lacks has its default, a field that is not
known is left out, and a record of a later ``VERSION`` is refused: a change that older code would misread raises it.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, TypeVar

from pydantic import Field, TypeAdapter, ValidationError

from models.errors import UserError
from tasks.core.former_names import current_metric_names

VERSION = 1  # of all records on disk; one that names none is of version 1
Record = TypeVar("Record")


def require_known(value: Mapping[str, Any], where: object) -> None:
    """Refuse a record that a later release wrote in a way that this one would misread.

    Raises:
        UserError: If the record's version is a later one.
    """
    found = value.get("version", VERSION)
    if isinstance(found, int) and found > VERSION:
        raise UserError(
            "this was written by a later release of FedScene",
            where=where,
            expected=f"a record of version {VERSION} or earlier",
            found=f"version {found}",
            hint="use the release that wrote it, or a later one",
        )


def _read(adapter: "TypeAdapter[Record]", value: Mapping[str, Any], what: str) -> Record:
    """Check a record from outside against its declared types; missing fields get their defaults, unknown ones go.

    Raises:
        ValueError: In one line: which field is wrong, and what it holds.
    """
    if _holds_huge_number(value):
        raise ValueError(f"{what} holds a number that is too large")
    try:
        return adapter.validate_json(json.dumps(value), strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in first["loc"]).lstrip(".")
        raise ValueError(
            f"{place[:120] or what} is {ascii(first['input'])[:60]}: {first['msg'][:120].lower()}"
        ) from error


def _holds_huge_number(value: Any) -> bool:
    """Tell whether an integer is too large for 64 bits; as a float it would silently be infinite."""
    if isinstance(value, Mapping):
        return any(map(_holds_huge_number, value.values()))
    if isinstance(value, list | tuple):
        return any(map(_holds_huge_number, value))
    return isinstance(value, int) and abs(value) >= 2**63


@dataclass(frozen=True)
class ModelRef:
    """A set of tensors in the store.

    Attributes:
        uri: Where the safetensors file is, relative to the run's root.
        digest: sha256 over the tensors in name order (name, dtype, shape, bytes).
        bytes: Size of all tensors together, without the file's header.
    """

    uri: str
    digest: str
    bytes: int

    @classmethod
    def of(cls, value: Mapping[str, Any]) -> "ModelRef":
        """Return the record that ``asdict`` was called on."""
        ref: ModelRef = _read(_ADAPTERS[cls.__name__], value, "the reference")
        return ref


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
    """

    client: str
    model: ModelRef
    samples: int
    steps: int
    sums: dict[str, tuple[float, float]]
    seconds: float
    state: ModelRef | None = None

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
        update: Update = _read(_ADAPTERS[cls.__name__], value, "the update")
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
        model: The new global model.
        cluster_models: One model per cluster, empty without clustering; ``prototypes`` on disk.
        cluster_of: Client id -> cluster index, empty without clustering; ``groups`` on disk.
        participants: Clients sampled for the round.
        updates: The updates that counted, per stage number.
        dropped: Clients that did not count, with the reason.
        stages: Cost per stage, in order.
        weights: Client id -> weight in the last average.
        metrics: Global metrics of the new model on the pooled test set, flat name -> number.
        per_class: Class -> {ap, precision, recall, f1, support, prevalence}.
        per_site: Site -> {macro_ap, micro_ap, ..., images}.
        per_client: Client -> the metrics on its own test images, or of its own model; empty where there are neither.
        confusion: Test images by class (rows) and predicted class (columns), for single labels and one global model.
        server_state: What the method keeps at the server from round to round, if anything.
        client_states: Client id -> reference of its private state after this round.
        notes: What deviated from the plan, in plain words.
        personal_states: Client id -> tensors that replace the global model's when it is evaluated; ``overlays``
            on disk.
    """

    round: int
    model: ModelRef
    cluster_models: Annotated[list[ModelRef], Field(alias="prototypes")] = field(default_factory=list)
    cluster_of: Annotated[dict[str, int], Field(alias="groups")] = field(default_factory=dict)
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
    server_state: ModelRef | None = None
    client_states: dict[str, ModelRef] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    personal_states: Annotated[dict[str, ModelRef], Field(alias="overlays")] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return _plain(self)

    @classmethod
    def of(cls, value: Mapping[str, Any]) -> "RoundRecord":
        """Return the record that ``as_dict`` was called on, by this or an earlier release."""
        record: RoundRecord = _read(_ADAPTERS[cls.__name__], value, "the record")
        return record


_ADAPTERS: dict[str, "TypeAdapter[Any]"] = {
    kind.__name__: TypeAdapter(kind) for kind in (ModelRef, Update, RoundRecord)
}


def _plain(record: Any) -> dict[str, Any]:
    return {"version": VERSION, **_ADAPTERS[type(record).__name__].dump_python(record, by_alias=True)}


def read_round(value: Mapping[str, Any], number: int) -> RoundRecord:
    """Return the record of round ``number`` from what its file holds.

    Raises:
        ValueError: In one line: what is wrong.
    """
    record = RoundRecord.of(current_metric_names(value))
    if record.round != number:
        raise ValueError(f"the record is of round {record.round}")
    return record
