"""The report of a table: what its rows are run with, and what their runs measured."""

import math
import os
import platform
from collections.abc import Sequence
from typing import Any

from flows.papers.replicate.results import (
    COMPARISONS,
    COSTS,
    REPORTED_METRICS,
    DataDescription,
    Point,
    RowResult,
    RunResult,
    TableReport,
)
from flows.papers.replicate.schema import Table
from flows.papers.replicate.tables import PlannedRun
from flows.run.code_version import code_version
from flows.run.inputs import DataPaths
from flows.settings.dotted import flat
from flows.settings.schema import Settings, as_values
from models.errors import UserError
from tasks.core.names import metric_parts
from tasks.core.records import RoundRecord
from tasks.core.round_summary import totals

# The table states these elsewhere; the images' folder on this machine tells a reader nothing, their digest does
_NOT_SHOWN = ("seed", "federation.rounds", "evaluation.every", "ingest.path")


def describe(table: Table, scale: str, runs: Sequence[PlannedRun], settings: Settings, data: DataPaths) -> TableReport:
    """Return the report of a table before any result: its images, each row's own settings, the machine.

    Args:
        table: The table.
        scale: small or full.
        runs: The runs of its rows.
        settings: Settings with which the images were prepared.
        data: Folders of the data.
    """
    size, first = table.scale(scale), next(run for run in runs if run.settings is not None)
    by_row = {run.row: run for run in reversed(runs)}
    return TableReport(
        table=table.name,
        title=table.title,
        source=table.source,
        scale=scale,
        scale_note=size.note,
        notes=list(table.notes),
        rounds=first.rounds,
        seeds=list(dict.fromkeys(run.seed for run in runs)),
        data=_describe_data(table, scale, settings, data),
        rows=[_describe_row(table, name, by_row[name], scale) for name in table.rows],
        settings=_shared_settings(runs),
        code=code_version(),
        versions=_versions(),
        machine={"system": platform.platform(), "cores": os.cpu_count()},
    )


def _describe_row(table: Table, name: str, run: PlannedRun, scale: str) -> RowResult:
    row = table.rows[name]
    paper = table.paper.get(name)
    return RowResult(
        name=name,
        paper=list(paper) if paper else None,
        note=row.note,
        presets=list(row.presets),
        settings=flat(row.settings) | flat(row.overrides_at(scale)),
        local_trainings=row.local_trainings_per_round,
        rounds=[run.rounds, run.last_round],
    )


def _shared_settings(runs: Sequence[PlannedRun]) -> dict[str, Any]:
    """Return the settings that all rows have in common, dotted name -> value."""
    values = [flat(as_values(run.settings)) for run in runs if run.settings is not None]
    first = values[0]
    same = {key for key in first if all(key in other and other[key] == first[key] for other in values)}
    return {key: first[key] for key in first if key in same and key not in _NOT_SHOWN}


def _describe_data(table: Table, scale: str, settings: Settings, data: DataPaths) -> DataDescription:
    from tasks.data.clients import load_clients, partitioned
    from tasks.data.dataset import load_dataset

    dataset, clients = load_dataset(data.dataset), load_clients(data.clients)
    dataset = partitioned(dataset, clients)
    about, test = table.dataset(scale), dataset.targets[dataset.splits == "test"]
    return DataDescription(
        name=table.data,
        title=about.title,
        note=about.note,
        seed=settings.seed,
        dataset_digest=dataset.digest,
        partition_digest=clients.digest,
        partition=settings.partition.scheme,
        clients=len(clients.ids),
        images={split: int((dataset.splits == split).sum()) for split in ("train", "val", "test")},
        image_size=settings.ingest.image_size,
        classes=list(dataset.classes),
        classes_without_positives=[
            name for name, count in zip(dataset.classes, test.sum(axis=0), strict=True) if not count
        ],
    )


def _versions() -> dict[str, str]:
    from importlib.metadata import version

    names = ("fedscene", "torch", "timm", "numpy", "scikit-learn")
    return {"python": platform.python_version()} | {name: version(name) for name in names}


def run_result(run: PlannedRun, run_id: str, records: Sequence[RoundRecord]) -> RunResult:
    """Return what a finished run measured at equal rounds and, if that is another round, at equal local epochs.

    Raises:
        UserError: If one of the two rounds was not evaluated.
    """
    last = None if run.equal_epoch_rounds is None else _point(run_id, records, run.equal_epoch_rounds)
    return RunResult(run.seed, run_id, records[-1].state.digest, _point(run_id, records, run.rounds), last)


def _point(run_id: str, records: Sequence[RoundRecord], number: int) -> Point:
    record = records[number - 1]
    if not record.metrics:
        raise UserError(
            f"round {number} was not evaluated", where=f"run {run_id}", hint="evaluation.every must divide the rounds"
        )
    costs = [totals(entry) for entry in records[:number]]
    down, up, seconds = (sum(entry[cost] for entry in costs) for cost in COSTS)
    return Point(number, record.state.digest, dict(record.metrics), dict(record.per_class), down, up, seconds)


def row_metrics(report: TableReport) -> dict[str, float]:
    """Return a table's numbers under names that MLflow accepts.

    Names are ``<row>/rounds|epochs/<metric or cost>`` for means and the same with ``_std`` for standard deviations.
    """
    out: dict[str, float] = {}
    parts = metric_parts(row.name for row in report.rows)
    for row in report.rows:
        for comparison in COMPARISONS:
            for name in (*REPORTED_METRICS, *COSTS):
                mean, std = row.mean_and_std(comparison, name)
                key = f"{parts[row.name]}/{comparison}/{name}"
                out |= {key: mean} if math.isfinite(mean) else {}
                out |= {f"{key}_std": std} if std is not None and math.isfinite(std) else {}
    return out
