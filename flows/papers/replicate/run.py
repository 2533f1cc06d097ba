"""Run the rows of a table that are missing. A finished run is read, never repeated.

Rows are ordinary runs: equal settings, data and seed give the same run folder, so tables share rows, and an interrupted
table continues where it stopped.
"""

import logging
from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar

from flows.engine.environment import runs_root
from flows.federation.progress import Progress
from flows.papers.replicate.report import describe, row_metrics, run_result
from flows.papers.replicate.results import RunResult, TableReport
from flows.papers.replicate.schema import Table
from flows.papers.replicate.tables import PlannedRun, data_folder, planned_runs, require_rows
from flows.papers.replicate.tracked import close_table, open_table, row_tags
from flows.papers.replicate.write import write_plots, write_table
from flows.run.inputs import DataPaths
from flows.run.open import derive_run_id
from flows.run.prepare_data import find_data, prepare_data
from flows.settings.schema import Settings, as_values
from models.errors import UserError
from tasks.client.stopping import TrainingStopped
from tasks.core.finished_rounds import finished_rounds
from tasks.core.records import RoundRecord
from tasks.core.store import Store, digest_of

Result = TypeVar("Result")


class RowOutcome(Protocol):
    """What a run of a row measured."""

    @property
    def headline(self) -> str:
        """Return its figures in words."""
        ...


class RowProgress(Progress, Protocol):
    """Progress of a table: of its rows, and of the rounds of each."""

    def row_begins(self, number: int, total: int, run: PlannedRun) -> None:
        """Report that a run starts or continues."""
        ...

    def row_done(self, run: PlannedRun, result: RowOutcome | None, failed: str | None) -> None:
        """Report that a run is finished, was finished before, or failed."""
        ...

    def counted(self, done: int, total: int | None) -> None:
        """Report how many images are prepared."""
        ...


@dataclass(frozen=True)
class Plan:
    """What a call of ``replicate`` runs and shows.

    Attributes:
        table: The table.
        scale: small or full.
        runs: Every run, row by row.
        selected: Rows that may be run; of the others, finished runs are shown.
        data_settings: Settings with which the images are prepared, once for all rows and seeds.
    """

    table: Table
    scale: str
    runs: list[PlannedRun]
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
    """Return the runs of a table, their settings checked.

    Args:
        table: The table.
        scale: small or full.
        root: Folder of image folders (``--data``).
        rows: Rows to run; none: all.
        overrides: ``section.key=value``, for every row.
        seeds: Instead of the scale's.

    Raises:
        UserError: If images are missing or have one label each, a row is unknown, or no row has valid settings.
    """
    require_rows(rows, table.rows)
    size = table.scale(scale)
    has_path = any(text.split("=")[0].strip() == "ingest.path" for text in overrides)
    folder = None if has_path else data_folder(table, scale, root)
    runs = planned_runs(table, scale, folder, overrides, seeds)
    valid = [run.settings for run in runs if run.settings is not None]
    if not valid:
        raise next(run.error for run in runs if run.error is not None)
    if valid[0].ingest.problem_kind == "single_label":
        raise UserError(
            "a table compares metrics of several labels an image, and its images have one",
            where=table.name,
            hint="make it a benchmark (kind: benchmark, docs/replicate.md), or set ingest.kind=multi_label",
        )
    first = valid[0].model_copy(update={"seed": size.data_seed})
    checked = [_with_same_images(run, first) for run in runs]
    return Plan(table, scale, checked, frozenset(rows or table.rows), first)


def _with_same_images(run: PlannedRun, first: Settings) -> PlannedRun:
    """Return the run, or one with an error if its row changes the images that all rows must share."""
    settings = run.settings
    if settings is None or (settings.ingest, settings.partition) == (first.ingest, first.partition):
        return run
    error = UserError(
        "a row may not change the images or the partition", where=f"row {run.row}", hint="--set changes them for all"
    )
    return replace(run, settings=None, error=error)


@dataclass(frozen=True)
class RunState:
    """How much of a run is done.

    Attributes:
        row: Name of the row.
        seed: Seed of the training.
        selected: Whether the run may be started.
        run_id: The run, ``None`` while that is not known.
        rounds: Finished rounds.
        of: Rounds that it needs.
        failed: Why it cannot run.
    """

    row: str
    seed: int
    selected: bool
    run_id: str | None
    rounds: int
    of: int
    failed: str | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return asdict(self)


def run_states(plan: Plan) -> list[RunState]:
    """Return how much of every run is done. Writes nothing."""
    data = find_data(plan.data_settings)
    return [_run_state(run, data, run.row in plan.selected) for run in plan.runs]


def _run_state(run: PlannedRun, data: DataPaths | None, selected: bool) -> RunState:
    state = RunState(run.row, run.seed, selected, None, 0, run.last_round)
    try:
        if run.error is not None:
            raise run.error
        if data is not None:
            name, records = _finished_rounds(run, data)
            return replace(state, run_id=name, rounds=len(records))
    except UserError as error:
        return replace(state, failed=str(error))
    return state


def _finished_rounds(run: PlannedRun, data: DataPaths) -> tuple[str, list[RoundRecord]]:
    """Return the run's id and its finished rounds."""
    assert run.settings is not None
    name = derive_run_id(run.settings, data)
    return name, finished_rounds(Store(runs_root() / name), run.settings.federation.rounds)


def replicate(plan: Plan, out: Path, progress: RowProgress) -> TableReport:
    """Run what is missing and write ``table.json``, ``table.md`` and plots to ``out``.

    The table is written after every run and then shows the finished ones; a row that fails does not end it.

    Raises:
        UserError: If the images cannot be prepared or MLflow cannot be used.
    """
    require_writable(out)
    parent = _open_parent(plan)
    data = prepare_data(plan.data_settings, progress.counted)
    report = describe(plan.table, plan.scale, plan.runs, plan.data_settings, data)
    report.mlflow_run_id = parent
    to_do = [run for run in plan.runs if run.row in plan.selected]
    finished = False
    try:
        for run in (run for run in plan.runs if run.row not in plan.selected):
            report.row(run.row).runs += _done_before(run, data)
        for number, run in enumerate(to_do, 1):
            progress.row_begins(number, len(to_do), run)
            result, failed = attempt(run, partial(_run, run, data, parent, plan, progress))
            row = report.row(run.row)
            row.runs += [] if result is None else [result]
            row.failed = failed or row.failed
            write_table(report, out)
            progress.row_done(run, result, failed)
        plots = write_plots(report, plan.table.main, out)
        files = [*write_table(report, out), *plots]
        finished = True
    finally:
        tracking = plan.data_settings.tracking
        close_table(tracking, parent, row_metrics(report), files if finished else [], finished)
    return report


def require_writable(folder: Path) -> None:
    """Create a folder and check that files can be written there, before hours of work.

    Raises:
        UserError: If nothing can be written there.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / ".writable").touch()
        (folder / ".writable").unlink()
    except OSError as error:
        raise UserError(
            "cannot write there", where=folder, expected="a folder that can be created", found=error
        ) from error


def _done_before(run: PlannedRun, data: DataPaths) -> list[RunResult]:
    """Return the result of a finished run; nothing if it is not finished or cannot be read."""
    try:
        name, records = _finished_rounds(run, data) if run.settings is not None else ("", [])
        return [run_result(run, name, records)] if len(records) == run.last_round else []
    except UserError:
        return []


def attempt(run: PlannedRun, work: Callable[[], Result]) -> tuple[Result | None, str | None]:
    """Do the work of a row; return its result, or why it failed: one row must not end hours of work.

    Raises:
        TrainingStopped: If the user ends it.
    """
    try:
        return work(), None
    except UserError as error:
        return None, str(error)
    except TrainingStopped:
        raise
    except Exception as error:
        logging.getLogger(__name__).exception("row %s, seed %d", run.row, run.seed)
        return None, f"{type(error).__name__}: {error}"


def _run(run: PlannedRun, data: DataPaths, parent: str | None, plan: Plan, progress: RowProgress) -> RunResult:
    """Make or continue one run; return what it measured.

    Raises:
        UserError: If its settings are not valid, or it cannot be made.
    """
    from flows.federate import federate

    if run.error is not None:
        raise run.error
    assert run.settings is not None
    name, records = _finished_rounds(run, data)
    if len(records) < run.settings.federation.rounds or not records[-1].metrics:
        tags = row_tags(plan.table.name, run.row, plan.scale, parent)
        summary = federate(run.settings, data, tags=tags, progress=progress)
        name, records = summary.run_id, summary.records
    return run_result(run, name, records)


def _open_parent(plan: Plan) -> str | None:
    """Open the table's run in MLflow, the same one on resume; every row that is run becomes its child."""
    settings = plan.data_settings
    about = plan.table.model_dump(mode="json")
    note = (
        f"{plan.table.title} ({plan.table.source}), scale {plan.scale}. {plan.table.scale(plan.scale).note} Rows are "
        "its child runs; a row that another table ran first is that table's child. The table: Artifacts, report/."
    )
    tag = f"{plan.table.name}-{plan.scale}-{digest_of(about, as_values(settings))[:10]}"
    params = {"table": plan.table.name, "scale": plan.scale, "data": plan.table.dataset(plan.scale).title}
    return open_table(settings.tracking, plan.table.name, plan.scale, tag, note, params)
