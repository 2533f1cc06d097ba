"""What a table's runs measured, as plain values: what ``table.json`` holds and ``table.md`` shows."""

import math
import os
import platform
from collections.abc import Mapping, Sequence
from typing import Any

from flows.papers.replicate.tables import METRICS, Job, Table
from flows.run.code_version import code_version
from flows.run.open import DataPaths
from flows.settings.dotted import flat
from flows.settings.schema import Settings, as_values
from models.errors import UserError
from tasks.core.names import metric_parts
from tasks.core.records import RoundRecord
from tasks.core.round_summary import totals
from tasks.core.summary_statistics import mean_and_std

# Of every point, with mean and standard deviation over the seeds
SHOWN = (*METRICS, "mean_f1", "macro_precision", "macro_recall", "micro_precision", "micro_recall")
COSTS = ("bytes_down", "bytes_up", "seconds")
# The table has its own words for these; where images lie on this machine tells a reader nothing, their digest does
_NOT_SETTINGS = ("seed", "federation.rounds", "evaluation.every", "ingest.path")


def describe(table: Table, scale: str, jobs: Sequence[Job], settings: Settings, data: DataPaths) -> dict[str, Any]:
    """The table without its runs: what it is, the images, each row's own settings, the machine.

    Args:
        table: The table.
        scale: small or full.
        jobs: Its runs.
        settings: Settings with which the images were prepared.
        data: Where they lie.
    """
    size, first = table.scale(scale), next(job for job in jobs if job.settings is not None)
    by_row = {job.row: job for job in reversed(jobs)}
    return {
        "table": table.name,
        "title": table.title,
        "source": table.source,
        "scale": scale,
        "scale_note": size.note,
        "notes": list(table.notes),
        "rounds": first.rounds,
        "seeds": list(dict.fromkeys(job.seed for job in jobs)),
        "data": _data(table, scale, settings, data),
        "rows": [_row(table, name, by_row[name], scale) for name in table.rows],
        "settings": _shared(jobs),
        "code": code_version(),
        "versions": _versions(),
        "machine": {"system": platform.platform(), "cores": os.cpu_count()},
    }


def _row(table: Table, name: str, job: Job, scale: str) -> dict[str, Any]:
    row = table.rows[name]
    paper = table.paper.get(name)
    return {
        "name": name,
        "paper": list(paper) if paper else None,
        "note": row.note,
        "presets": list(row.presets),
        "settings": merge_at(row.settings, row.at.get(scale, {})),  # type: ignore[call-overload]
        "stages": row.stages,
        "rounds": [job.rounds, job.epochs or job.rounds],
        "runs": [],
        "failed": None,
    }


def merge_at(settings: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """A row's own settings, dotted."""
    return flat(settings) | flat(more)


def _shared(jobs: Sequence[Job]) -> dict[str, Any]:
    """The settings that all rows have in common, dotted."""
    values = [flat(as_values(job.settings)) for job in jobs if job.settings is not None]
    first = values[0]
    same = {key for key in first if all(key in other and other[key] == first[key] for other in values)}
    return {key: first[key] for key in first if key in same and key not in _NOT_SETTINGS}


def _data(table: Table, scale: str, settings: Settings, data: DataPaths) -> dict[str, Any]:
    from tasks.data.clients import load_clients
    from tasks.data.dataset import load_dataset

    dataset, clients = load_dataset(data.dataset), load_clients(data.clients)
    about, test = table.dataset(scale), dataset.targets[dataset.splits == "test"]
    return {
        "name": table.data,
        "title": about.title,
        "note": about.note,
        "seed": settings.seed,
        "dataset_digest": dataset.digest,
        "partition_digest": clients.digest,
        "partition": settings.partition.scheme,
        "clients": len(clients.ids),
        "images": {split: int((dataset.splits == split).sum()) for split in ("train", "val", "test")},
        "image_size": settings.ingest.image_size,
        "classes": list(dataset.classes),
        "classes_without_positives": [
            name for name, count in zip(dataset.classes, test.sum(axis=0), strict=True) if not count
        ],
    }


def _versions() -> dict[str, str]:
    from importlib.metadata import version

    names = ("fedscene", "torch", "timm", "numpy", "scikit-learn")
    return {"python": platform.python_version()} | {name: version(name) for name in names}


def measured(job: Job, run_id: str, records: Sequence[RoundRecord]) -> dict[str, Any]:
    """A finished run at equal rounds and, for a single-stage row, at equal local epochs.

    Raises:
        UserError: If one of the two rounds was not scored.
    """
    first = _point(run_id, records, job.rounds)
    last = None if job.epochs is None else _point(run_id, records, job.epochs)
    return {
        "seed": job.seed,
        "run_id": run_id,
        "digest": records[-1].model.digest,
        "at": {"rounds": first, "epochs": last},
        "per_class": first["per_class"],
        **{cost: (last or first)[cost] for cost in COSTS},
    }


def _point(run_id: str, records: Sequence[RoundRecord], number: int) -> dict[str, Any]:
    """The model after a round, and what all rounds up to it cost."""
    record = records[number - 1]
    if not record.metrics:
        raise UserError(
            f"round {number} was not scored", where=f"run {run_id}", hint="evaluation.every must divide the rounds"
        )
    costs = [totals(entry) for entry in records[:number]]
    return {
        "round": number,
        "digest": record.model.digest,
        "metrics": dict(record.metrics),
        "per_class": dict(record.per_class),
        **{cost: sum(entry[cost] for entry in costs) for cost in COSTS},
    }


def point_of(run: Mapping[str, Any], when: str) -> Mapping[str, Any]:
    """A run at ``rounds`` or at ``epochs``; a two-stage run is the same at both."""
    point: Mapping[str, Any] | None = run["at"][when]
    return run["at"]["rounds"] if point is None else point


def over_seeds(row: Mapping[str, Any], when: str, name: str) -> tuple[float, float | None]:
    """Return mean and sample standard deviation of a metric or cost over a row's seeds (``mean_and_std``).

    The mean is NaN without a run, or if any run's value is not finite.
    """
    points = [point_of(run, when) for run in row["runs"]]
    values = [point[name] if name in COSTS else point["metrics"].get(name, math.nan) for point in points]
    return mean_and_std(values) if all(map(math.isfinite, values)) else (math.nan, None)


def row_metrics(report: Mapping[str, Any]) -> dict[str, float]:
    """A table's numbers under names that MLflow accepts: ``<row>/rounds|epochs/<metric>[_std]`` and costs."""
    out: dict[str, float] = {}
    parts = metric_parts(row["name"] for row in report["rows"])
    for row in report["rows"]:
        for when in ("rounds", "epochs"):
            for name in (*SHOWN, *COSTS):
                mean, std = over_seeds(row, when, name)
                key = f"{parts[row['name']]}/{when}/{name}"
                out |= {key: mean} if math.isfinite(mean) else {}
                out |= {f"{key}_std": std} if std is not None else {}
    return out
