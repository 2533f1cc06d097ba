"""Results of a table, as they are kept in memory and written to ``table.json``."""

import math
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from flows.papers.replicate.schema import METRICS
from models.errors import UserError
from tasks.core.metric_titles import headline
from tasks.core.summary_statistics import mean_and_std

# Rows are compared at equal rounds, and at equal numbers of local epochs
Comparison = Literal["rounds", "epochs"]
COMPARISONS: tuple[Comparison, ...] = ("rounds", "epochs")

REPORTED_METRICS = (*METRICS, "mean_f1", "macro_precision", "macro_recall", "micro_precision", "micro_recall")
COSTS = ("bytes_down", "bytes_up", "seconds")


@dataclass(frozen=True)
class Point:
    """The model after a round.

    Attributes:
        round: The round.
        digest: Digest of the global model.
        metrics: Its metrics on the pooled test set.
        per_class: Class -> its metrics.
        bytes_down: Bytes sent to clients in all rounds so far.
        bytes_up: Bytes received from them.
        seconds: Wall time of the rounds' stages.
    """

    round: int
    digest: str
    metrics: dict[str, float]
    per_class: dict[str, dict[str, float]]
    bytes_down: float
    bytes_up: float
    seconds: float

    def value(self, name: str) -> float:
        """Return a metric or a cost; NaN for a metric that was not measured."""
        if name in COSTS:
            return float(getattr(self, name))
        value = self.metrics.get(name)
        return math.nan if value is None else float(value)


@dataclass(frozen=True)
class RunResult:
    """A finished run of a row.

    Attributes:
        seed: Seed of the training.
        run_id: The run.
        digest: Digest of its last model.
        rounds: The model after as many rounds as all rows have.
        epochs: The model after as many local epochs as the others; ``None`` for rows that train twice a round, where
            it is the same.
    """

    seed: int
    run_id: str
    digest: str
    rounds: Point
    epochs: Point | None = None

    def at(self, comparison: Comparison) -> Point:
        """Return the model that counts in a comparison."""
        return self.epochs if comparison == "epochs" and self.epochs is not None else self.rounds

    @property
    def headline(self) -> str:
        """Return its first figures in words."""
        return headline(self.rounds.metrics)

    def as_dict(self) -> dict[str, Any]:
        """Return the run as it is written to ``table.json``."""
        last = self.at("epochs")
        return {
            "seed": self.seed,
            "run_id": self.run_id,
            "digest": self.digest,
            "at": {"rounds": asdict(self.rounds), "epochs": self.epochs and asdict(self.epochs)},
            "per_class": self.rounds.per_class,
            **{cost: getattr(last, cost) for cost in COSTS},
        }


@dataclass
class RowResult:
    """A row of a table and its runs.

    Attributes:
        name: Name of the row.
        paper: The printed metrics in the order of ``METRICS``, ``None`` if the paper does not have the row.
        note: Text for the reader.
        presets: Presets of the row.
        settings: The row's own settings, dotted name -> value.
        local_trainings: Local trainings of a client per round.
        rounds: Rounds of the two comparisons.
        runs: Finished runs.
        failed: Why a run failed, ``None`` if none did.
    """

    name: str
    paper: list[float] | None = None
    note: str | None = None
    presets: list[str] = field(default_factory=list)
    settings: dict[str, Any] = field(default_factory=dict)
    local_trainings: int = 1
    rounds: list[int] = field(default_factory=list)
    runs: list[RunResult] = field(default_factory=list)
    failed: str | None = None

    def mean_and_std(self, comparison: Comparison, name: str) -> tuple[float, float | None]:
        """Return mean and sample standard deviation of a metric or cost over the seeds.

        The mean is NaN without a run, or if any run's value is not finite.
        """
        values = [run.at(comparison).value(name) for run in self.runs]
        return mean_and_std(values) if all(map(math.isfinite, values)) else (math.nan, None)

    def as_dict(self) -> dict[str, Any]:
        """Return the row as it is written to ``table.json``."""
        return {
            "name": self.name,
            "paper": self.paper,
            "note": self.note,
            "presets": self.presets,
            "settings": self.settings,
            "stages": self.local_trainings,  # the key's name in the files of all releases
            "rounds": self.rounds,
            "runs": [run.as_dict() for run in self.runs],
            "failed": self.failed,
        }


@dataclass(frozen=True)
class DataDescription:
    """The images of a table.

    Attributes:
        name: Key of the data set in the table file.
        title: What the images are.
        note: How they differ from the paper's.
        seed: Seed of synthesis, split and partition.
        dataset_digest: Digest of the data set.
        partition_digest: Digest of the partition.
        partition: Scheme of the partition.
        clients: Number of clients.
        images: Split -> number of images.
        image_size: Side, pixels.
        classes: The labels.
        classes_without_positives: Those without a positive test image.
    """

    name: str
    title: str
    note: str | None
    seed: int
    dataset_digest: str
    partition_digest: str
    partition: str
    clients: int
    images: dict[str, int]
    image_size: int
    classes: list[str]
    classes_without_positives: list[str]


@dataclass
class TableReport:
    """A table with its results.

    Attributes:
        table: Name of the table.
        title: What it shows.
        source: Paper and number of the table.
        scale: small or full.
        scale_note: What the figures mean at this scale.
        notes: Text for the reader.
        rounds: Rounds R at which all rows are compared.
        seeds: Seeds of the training.
        data: The images.
        rows: The rows.
        settings: What all rows have in common, dotted name -> value.
        code: Version of the code.
        versions: Library -> version.
        machine: System and number of cores.
        mlflow_run_id: The table's run in MLflow, ``None`` if tracking is off.
    """

    table: str
    title: str
    source: str
    scale: str
    scale_note: str
    notes: list[str]
    rounds: int
    seeds: list[int]
    data: DataDescription
    rows: list[RowResult]
    settings: dict[str, Any]
    code: str
    versions: dict[str, str]
    machine: dict[str, str | int | None]
    mlflow_run_id: str | None = None

    def row(self, name: str) -> RowResult:
        """Return the named row.

        Raises:
            UserError: If the table has no such row.
        """
        for row in self.rows:
            if row.name == name:
                return row
        names = ", ".join(row.name for row in self.rows)
        raise UserError("the table has no such row", where=self.table, expected=names, found=name)

    def as_dict(self) -> dict[str, Any]:
        """Return the report as it is written to ``table.json``."""
        return vars(self) | {"data": asdict(self.data), "rows": [row.as_dict() for row in self.rows]}
