"""Runs the rows of a table that are missing. A run that is finished is read, never done again.

Rows are ordinary runs: the same settings, data and seed give the same run folder, so tables share rows, and an
interrupted table goes on where it was.
"""

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from flows.engine.environment import runs_root
from flows.federation.progress import Progress
from flows.papers.replicate.report import describe, measured, row_metrics
from flows.papers.replicate.tables import Job, Table, data_folder, jobs
from flows.papers.replicate.write import write_plots, write_table
from flows.run.data import find_data, prepare_data
from flows.run.open import DataPaths, run_of
from flows.settings.schema import Settings, as_values
from models.errors import UserError
from tasks.client.train import TrainingStopped
from tasks.core.finished_rounds import finished_rounds
from tasks.core.records import RoundRecord
from tasks.core.store import Store, digest_of


class RowProgress(Progress, Protocol):
    """Told about rounds, and about rows."""

    def row_begins(self, number: int, total: int, job: Job) -> None:
        """A run begins, or goes on."""
        ...

    def row_done(self, job: Job, run: Mapping[str, Any] | None, failed: str | None) -> None:
        """A run is finished, or was before, or failed."""
        ...

    def counted(self, done: int, total: int | None) -> None:
        """Images are being prepared."""
        ...


@dataclass(frozen=True)
class Plan:
    """What a call of ``replicate`` is about.

    Attributes:
        table: The table.
        scale: small or full.
        jobs: Every run, row by row.
        selected: Rows that may be run; of the others finished runs are shown.
        data_settings: Settings with which the images are prepared, once for all rows and seeds.
    """

    table: Table
    scale: str
    jobs: list[Job]
    selected: frozenset[str]
    data_settings: Settings


def make_plan(
    table: Table,
    scale: str,
    root: Path | None,
    rows: Collection[str] = (),
    overrides: Sequence[str] = (),
    seeds: Sequence[int] | None = None,
) -> Plan:
    """The runs of a table, their settings checked.

    Args:
        table: The table.
        scale: small or full.
        root: Folder of image folders (``--data``).
        rows: Rows to run; none: all.
        overrides: ``section.key=value``, for every row.
        seeds: Instead of the scale's.

    Raises:
        UserError: If images are missing, a row is unknown, or no row has valid settings.
    """
    unknown = sorted(set(rows) - set(table.rows))
    if unknown:
        known = ", ".join(table.rows)
        raise UserError("the table has no such row", where="--rows", expected=known, found=", ".join(unknown))
    size = table.scale(scale)
    own_images = any(text.split("=")[0].strip() == "ingest.path" for text in overrides)
    folder = None if own_images else data_folder(table, scale, root)
    found = jobs(table, scale, folder, overrides, seeds)
    valid = [job.settings for job in found if job.settings is not None]
    if not valid:
        raise next(job.error for job in found if job.error is not None)
    first = valid[0].model_copy(update={"seed": size.data_seed})
    checked = [_on_the_same_images(job, first) for job in found]
    return Plan(table, scale, checked, frozenset(rows or table.rows), first)


def _on_the_same_images(job: Job, first: Settings) -> Job:
    """A row that changes the images would be compared with others on other images."""
    settings = job.settings
    if settings is None or (settings.ingest, settings.partition) == (first.ingest, first.partition):
        return job
    error = UserError("a row may not change the images or who holds them", where=f"row {job.row}", hint="--set does")
    return replace(job, settings=None, error=error)


def state(plan: Plan) -> list[dict[str, Any]]:
    """What there is of every run; writes nothing. ``rounds`` done of ``of``; ``failed`` where it cannot run."""
    data = find_data(plan.data_settings)
    return [_state(job, data, job.row in plan.selected) for job in plan.jobs]


def _state(job: Job, data: DataPaths | None, selected: bool) -> dict[str, Any]:
    of = job.epochs or job.rounds
    entry = {"row": job.row, "seed": job.seed, "selected": selected, "run_id": None, "rounds": 0, "of": of}
    try:
        if job.error is not None:
            raise job.error
        if data is not None:
            entry["run_id"], records = _found(job, data)
            entry["rounds"] = len(records)
    except UserError as error:
        return entry | {"failed": str(error)}
    return entry | {"failed": None}


def _found(job: Job, data: DataPaths) -> tuple[str, list[RoundRecord]]:
    """The run's id and its finished rounds."""
    assert job.settings is not None
    name = run_of(job.settings, data)
    return name, finished_rounds(Store(runs_root() / name), job.settings.federation.rounds)


def replicate(plan: Plan, out: Path, progress: RowProgress) -> dict[str, Any]:
    """Runs what is missing and writes ``table.json``, ``table.md`` and plots to ``out``.

    The table is written after every run, so that it says how far it is; one row's error does not end it.

    Returns:
        What ``table.json`` holds.

    Raises:
        UserError: If the images cannot be prepared or MLflow cannot be used.
    """
    require_writable(out)
    parent = _open_parent(plan)
    data = prepare_data(plan.data_settings, progress.counted)
    report = describe(plan.table, plan.scale, plan.jobs, plan.data_settings, data) | {"mlflow_run_id": parent}
    entries = {row["name"]: row for row in report["rows"]}
    to_do = [job for job in plan.jobs if job.row in plan.selected]
    finished = False
    try:
        for job in (job for job in plan.jobs if job.row not in plan.selected):
            entries[job.row]["runs"] += _done_before(job, data)
        for number, job in enumerate(to_do, 1):
            progress.row_begins(number, len(to_do), job)
            run, failed = _run(job, data, parent, plan, progress)
            if run is not None:
                entries[job.row]["runs"].append(run)
            if failed is not None:
                entries[job.row]["failed"] = failed
            write_table(report, out)
            progress.row_done(job, run, failed)
        plots = write_plots(report, plan.table.main, out)
        files = [*write_table(report, out), *plots]
        finished = True
    finally:
        _close_parent(plan, parent, report, files if finished else [], finished)
    return report


def require_writable(folder: Path) -> None:
    """Makes the folder, before hours of work for something that cannot be written.

    Raises:
        UserError: If nothing can be written there.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / ".writable").touch()
        (folder / ".writable").unlink()
    except OSError as error:
        raise UserError(
            "cannot write there", where=folder, expected="a folder that can be made", found=error
        ) from error


def _done_before(job: Job, data: DataPaths) -> list[dict[str, Any]]:
    """A run that is finished; none where it is not, or cannot be read."""
    try:
        name, records = _found(job, data) if job.settings is not None else ("", [])
        return [measured(job, name, records)] if len(records) == (job.epochs or job.rounds) else []
    except UserError:
        return []


def _run(
    job: Job, data: DataPaths, parent: str | None, plan: Plan, progress: RowProgress
) -> tuple[dict[str, Any] | None, str | None]:
    """One run: what it measured, or why it failed."""
    from flows.federate import federate

    try:
        if job.settings is None:
            assert job.error is not None
            raise job.error
        name, records = _found(job, data)
        if len(records) < job.settings.federation.rounds or not records[-1].metrics:
            tags = {"fedscene.table": plan.table.name, "fedscene.row": job.row, "fedscene.scale": plan.scale}
            if parent is not None:
                tags["mlflow.parentRunId"] = parent
            summary = federate(job.settings, data, tags=tags, progress=progress)
            name, records = summary.run_id, summary.records
        return measured(job, name, records), None
    except UserError as error:
        return None, str(error)
    except TrainingStopped:
        raise
    except Exception as error:  # one row must not end a table that may have run for hours
        logging.getLogger(__name__).exception("row %s, seed %d", job.row, job.seed)
        return None, f"{type(error).__name__}: {error}"


def _open_parent(plan: Plan) -> str | None:
    """The table's run in MLflow, found again on resume; every row that is run becomes its child."""
    settings = plan.data_settings
    if not settings.tracking.enabled:
        return None
    from tasks.tracking import mlflow_runs
    from tasks.tracking.availability import check_available
    from tasks.tracking.tags import RUN_TAG

    check_available(settings.tracking, runs_root())
    about = plan.table.model_dump(mode="json")
    own = f"{plan.table.name}-{plan.scale}-{digest_of(about, as_values(settings))[:10]}"
    tags = {
        RUN_TAG: own,
        "fedscene.table": plan.table.name,
        "fedscene.scale": plan.scale,
        "mlflow.source.name": "fedscene",
        "mlflow.note.content": f"{plan.table.title} ({plan.table.source}), scale {plan.scale}. "
        f"{plan.table.scale(plan.scale).note} Rows are its child runs; a row that another table ran first is that "
        "table's child. The table: Artifacts, report/.",
    }
    params = {"table": plan.table.name, "scale": plan.scale, "data": plan.table.dataset(plan.scale).title}
    return mlflow_runs.open_run(settings.tracking, runs_root(), own, params, tags)


def _close_parent(plan: Plan, parent: str | None, report: dict[str, Any], files: list[Path], finished: bool) -> None:
    """The table and its numbers to MLflow. They are on disk already, so a server that is away is only named."""
    if parent is None:
        return
    from tasks.tracking import mlflow_runs

    try:
        status = "FINISHED" if finished else "FAILED"
        settings = plan.data_settings.tracking
        mlflow_runs.log_table(settings, runs_root(), parent, row_metrics(report))
        mlflow_runs.finish_run(settings, runs_root(), parent, status, files)
    except UserError as error:
        logging.getLogger(__name__).warning("the table is not in MLflow: %s", error)
