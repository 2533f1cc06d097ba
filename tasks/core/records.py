"""The small records that tasks take and return. References travel, tensors don't.

Records on disk outlive the code that wrote them. A field that one of them lacks has its default, a field that is not
known is left out, and a record of a later ``VERSION`` is refused: a change that older code would misread raises it.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, TypeVar

from models.errors import UserError

VERSION = 1  # of all records on disk; one that names none is of version 1
Flat = TypeVar("Flat")


def require_known(value: Mapping[str, Any], where: object) -> None:
    """Refuses a record that a later release wrote in a way that this one would misread.

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


def _known(cls: type[Flat], value: Mapping[str, Any]) -> Flat:
    """A dataclass of plain values from a mapping that may hold more."""
    return cls(**{entry.name: value[entry.name] for entry in fields(cls) if entry.name in value})  # type: ignore[arg-type]


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
    def of(cls, value: dict[str, Any]) -> "ModelRef":
        """The record that ``asdict`` was called on."""
        return cls(str(value["uri"]), str(value["digest"]), int(value["bytes"]))


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
        """The mean of one loss term, NaN when nothing was counted."""
        total, weight = self.sums.get(term, (0.0, 0.0))
        return total / weight if weight else float("nan")

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {"version": VERSION, **asdict(self)}

    @classmethod
    def of(cls, value: dict[str, Any]) -> "Update":
        """The record that ``as_dict`` was called on."""
        return cls(
            client=value["client"],
            model=ModelRef.of(value["model"]),
            samples=int(value["samples"]),
            steps=int(value["steps"]),
            sums={name: (float(pair[0]), float(pair[1])) for name, pair in value.get("sums", {}).items()},
            seconds=float(value.get("seconds", 0.0)),
            state=ModelRef.of(value["state"]) if value.get("state") else None,
        )


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
        name: The stage's speaking name.
        seconds: Wall seconds.
        bytes_down: Bytes sent to clients, equal multiplicity to one client counted once.
        bytes_down_naive: The same with every copy counted, as the paper sends them.
        bytes_up: Bytes sent by clients.
        clients: Number of clients that answered.
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
        prototypes: The cluster models (FMMAN's stage 2), empty for single-stage methods.
        groups: Client id -> cluster index, empty without clustering.
        participants: Clients sampled for the round.
        updates: The updates that counted, per stage number.
        dropped: Clients that did not count, with the reason.
        stages: Cost per stage, in order.
        weights: Client id -> weight in the last average.
        metrics: Global metrics of the new model on the pooled test set, flat name -> number.
        per_class: Class -> {ap, precision, recall, f1, support, prevalence}.
        per_site: Site -> {macro_ap, micro_ap, ..., images}.
        per_client: Client -> the metrics on its own test images, or of its own model; empty where there are neither.
        server_state: What the method keeps at the server from round to round, if anything.
        client_states: Client id -> reference of its private state after this round.
        notes: What deviated from the plan, in plain words.
        personal_states: Client id -> tensors that replace the global model's when it is evaluated.
    """

    round: int
    model: ModelRef
    prototypes: list[ModelRef] = field(default_factory=list)
    groups: dict[str, int] = field(default_factory=dict)
    participants: list[str] = field(default_factory=list)
    updates: dict[int, list[Update]] = field(default_factory=dict)
    dropped: list[Dropped] = field(default_factory=list)
    stages: list[StageLog] = field(default_factory=list)
    weights: dict[str, float] = field(default_factory=dict)
    metrics: dict[str, float] = field(default_factory=dict)
    per_class: dict[str, dict[str, float]] = field(default_factory=dict)
    per_site: dict[str, dict[str, float]] = field(default_factory=dict)
    per_client: dict[str, dict[str, float]] = field(default_factory=dict)
    server_state: ModelRef | None = None
    client_states: dict[str, ModelRef] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    personal_states: dict[str, ModelRef] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {"version": VERSION, **asdict(self)}

    @classmethod
    def of(cls, value: dict[str, Any]) -> "RoundRecord":
        """The record that ``as_dict`` was called on (after a trip through JSON), by this or an earlier release."""

        def table(name: str) -> dict[str, Any]:
            return dict(value.get(name, {}))

        return cls(
            round=int(value["round"]),
            model=ModelRef.of(value["model"]),
            prototypes=[ModelRef.of(ref) for ref in value.get("prototypes", [])],
            groups={client: int(group) for client, group in table("groups").items()},
            participants=list(value.get("participants", [])),
            updates={int(s): [Update.of(u) for u in ups] for s, ups in table("updates").items()},
            dropped=[_known(Dropped, entry) for entry in value.get("dropped", [])],
            stages=[_known(StageLog, entry) for entry in value.get("stages", [])],
            weights=table("weights"),
            metrics=table("metrics"),
            per_class=table("per_class"),
            per_site=table("per_site"),
            per_client=table("per_client"),
            server_state=ModelRef.of(value["server_state"]) if value.get("server_state") else None,
            client_states={c: ModelRef.of(ref) for c, ref in table("client_states").items()},
            notes=list(value.get("notes", [])),
            personal_states={c: ModelRef.of(ref) for c, ref in table("personal_states").items()},
        )
