"""Run the rows of a benchmark that are missing, over as many sittings as it takes.

Rows are ordinary runs: finished rounds are found and never repeated. What a row has measured is kept in ``NAME.json``
too, so that the page still shows a row after the code has changed, or on a machine that did not run it.
"""

import json
import logging
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from flows.engine.environment import runs_root
from flows.papers.benchmark.cell_run import CellRun
from flows.papers.benchmark.figures import write_figures
from flows.papers.benchmark.page import page
from flows.papers.benchmark.plan import BenchmarkPlan, RowPlan
from flows.papers.benchmark.results import BenchmarkReport, CellRow, newest, read_record
from flows.papers.replicate.run import RowProgress, attempt, require_writable
from flows.papers.replicate.tables import PlannedRun
from flows.papers.replicate.tracked import close_table, open_table, row_tags
from flows.run.open import derive_run_id
from flows.run.prepare_data import find_data, prepare_data
from flows.settings.schema import Settings
from models.errors import UserError
from models.files import write_text
from tasks.core.finished_rounds import finished_rounds
from tasks.core.json_files import to_json_values
from tasks.core.names import metric_parts
from tasks.core.records import RoundRecord
from tasks.core.round_summary import last_evaluated, totals
from tasks.core.store import Store, digest_of

SECONDS = "seconds"


@dataclass(frozen=True)
class RowState:
    """How much of a run is done, and how much work it is.

    Attributes:
        row: The row.
        seed: Seed of the run.
        selected: Whether it may be started.
        rounds: Finished rounds.
        of: Rounds that it needs.
        passes: Training passes over an image that are left, estimated.
        problem: Why it cannot run, ``None`` if it can.
    """

    row: str
    seed: int | None
    selected: bool
    rounds: int
    of: int
    passes: int
    problem: str | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return asdict(self)


def row_states(plan: BenchmarkPlan) -> list[RowState]:
    """Return how much of every run is done. Writes nothing."""
    return [state for row in plan.rows for state in _states(plan, row)]


def _states(plan: BenchmarkPlan, row: RowPlan) -> list[RowState]:
    selected = row.name in plan.selected
    if row.row.not_yet is not None:
        return [RowState(row.name, None, False, 0, 0, 0, f"not yet available: {row.row.not_yet}")]
    states = []
    for run in row.runs:
        error, done = run.error or row.missing, 0
        if run.error is None and row.missing is None:
            try:
                found = measured(plan, row, run)
                done = 0 if found is None else len(found.curve)
            except UserError as problem:
                error = problem
        left = row.passes / len(row.runs) * (1 - done / run.rounds)
        states.append(
            RowState(row.name, run.seed, selected, done, run.rounds, round(left), None if error is None else str(error))
        )
    return states


def replicate_cells(plan: BenchmarkPlan, out: Path, progress: RowProgress) -> BenchmarkReport:
    """Run what is missing and write ``NAME.json`` and ``NAME.md`` to ``out``, after every run and when interrupted.

    Plots are written at the end of a sitting.

    Raises:
        UserError: If MLflow cannot be used, or an earlier ``NAME.json`` cannot be read.
    """
    require_writable(out)
    name = plan.benchmark.name
    record = read_record(out / f"{name}.json", name, plan.scale)
    report = BenchmarkReport(plan.benchmark, plan.scale, {row.name: CellRow(row.name) for row in plan.rows})
    for row in plan.rows:
        report.rows[row.name].runs = newest(_found(plan, row), record.get(row.name, []))
    to_do = plan.to_do()
    tracking = next((run.settings for _, run in to_do if run.settings is not None), None)
    parent = _open_parent(plan, tracking) if tracking else None
    report.mlflow_run_id = parent
    finished = False
    try:
        for number, (row, run) in enumerate(to_do, 1):
            progress.row_begins(number, len(to_do), run)
            cell = report.rows[row.name]
            try:
                done, failed = attempt(run, partial(_run, plan, row, run, parent, progress))
            finally:  # if it is interrupted too: its rounds belong on the page
                cell.runs = newest(_found(plan, row), cell.runs)
            cell.failed = failed or cell.failed
            _write(report, out, with_plots=False)
            progress.row_done(run, done, failed)
        finished = True
    finally:
        files = _write(report, out, with_plots=True)
        if tracking:
            close_table(tracking.tracking, parent, _metrics(report), files, finished)
    return report


def _write(report: BenchmarkReport, out: Path, with_plots: bool) -> list[Path]:
    """Write record and page; plots, which take seconds, only when a sitting ends."""
    name = report.benchmark.name
    plots = write_figures(report, out) if with_plots else {}
    text = json.dumps(to_json_values(report.as_dict()), indent=1, allow_nan=False)
    write_text(out / f"{name}.md", page(report, plots))
    write_text(out / f"{name}.json", text + "\n")
    return [out / f"{name}.md", out / f"{name}.json", *plots.values()]


def _found(plan: BenchmarkPlan, row: RowPlan) -> list[CellRun]:
    """Return the row's runs on this machine that have finished rounds; none that cannot be read."""
    found = []
    for run in row.runs:
        try:
            one = measured(plan, row, run) if row.missing is None else None
        except UserError as error:
            logging.getLogger(__name__).warning("row %s, seed %d: %s", run.row, run.seed, error)
            continue
        found += [] if one is None else [one]
    return found


def measured(plan: BenchmarkPlan, row: RowPlan, run: PlannedRun) -> CellRun | None:
    """Return what a run has measured; ``None`` if it has no finished round."""
    if run.settings is None or (data := find_data(run.settings)) is None:
        return None
    run_id = derive_run_id(run.settings, data)
    store = Store(runs_root() / run_id)
    records = finished_rounds(store, run.settings.federation.rounds)
    if not records:
        return None
    protocol = plan.benchmark.protocols[row.row.protocol]
    deviations = [row.variant.deviation if row.variant else None, plan.changed and f"run with --set {plan.changed}"]
    curves = {
        name: [100 * record.metrics.get(name, math.nan) for record in records]
        for name in (protocol.metric, *protocol.also)
    }
    if records[-1].metrics and protocol.metric not in records[-1].metrics:
        expected, names = protocol.metric, ", ".join(sorted(records[-1].metrics)[:12])
        raise UserError("the rounds do not have the row's metric", where=store.path(""), expected=expected, found=names)
    return CellRun(
        run.seed,
        run_id,
        str(store.read_json("run.json")["code"]),
        protocol.rounds if plan.scale == "full" else run.rounds,
        curves.pop(protocol.metric),
        sum(totals(record)[SECONDS] for record in records),
        "; ".join(filter(None, deviations)),
        curves,
        _of_clients(records, protocol.metric),
    )


def _of_clients(records: Sequence[RoundRecord], metric: str) -> list[float]:
    """Return each client's percent after the last evaluated round where the metric is a mean over clients."""
    name, _, statistic = metric.rpartition("/")
    rows = last_evaluated(records).per_client.values()
    return [100 * row[name] for row in rows if statistic.endswith("mean") and name in row]


def _run(plan: BenchmarkPlan, row: RowPlan, run: PlannedRun, parent: str | None, progress: RowProgress) -> CellRun:
    """Make or continue one run; return what it measured.

    Raises:
        UserError: If its images are missing, its settings are not valid, or it cannot be made.
    """
    from flows.federate import federate

    if (problem := row.missing or run.error) is not None:
        raise problem
    assert run.settings is not None
    done = measured(plan, row, run)
    if done is None or len(done.curve) < run.rounds:
        data = prepare_data(run.settings, progress.counted)
        federate(run.settings, data, tags=row_tags(plan.benchmark.name, run.row, plan.scale, parent), progress=progress)
        done = measured(plan, row, run)
    assert done is not None
    return done


def _open_parent(plan: BenchmarkPlan, settings: Settings) -> str | None:
    benchmark = plan.benchmark
    tag = f"{benchmark.name}-{plan.scale}-{digest_of(benchmark.model_dump(mode='json'))[:10]}"
    note = f"{benchmark.title}, scale {plan.scale}. Rows are its child runs. The page: Artifacts, report/."
    params = {"table": benchmark.name, "scale": plan.scale}
    return open_table(settings.tracking, benchmark.name, plan.scale, tag, note, params)


def _metrics(report: BenchmarkReport) -> dict[str, float]:
    """Return the finished rows' figures under names that MLflow accepts: ``<row>/value``, ``<row>/value_std``."""
    out: dict[str, float] = {}
    parts = metric_parts(report.rows)
    for name in report.rows:
        mean, std = report.figure(name)
        out |= {f"{parts[name]}/value": mean} if math.isfinite(mean) else {}
        out |= {f"{parts[name]}/value_std": std} if std is not None else {}
    return out
