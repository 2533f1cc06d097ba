"""R rounds of one method: what ``fedscene run``, the pipeline flow and ``dvc repro`` call.

A round that is finished is never done again: the same settings and data give the same run folder, and its
``rounds/NNNN`` say where to go on.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from flows.engine.engines import Engine, in_flow, make_engine
from flows.engine.environment import prepare_torch, runs_root
from flows.engine.interrupt import stopping_on_interrupt
from flows.federation.federation import Federation
from flows.federation.progress import Progress, Quiet
from flows.methods import load_method
from flows.run.data_warnings import data_remarks
from flows.run.open import DataPaths, Run, open_run
from flows.run.results import export
from flows.run.tracker import Tracker, open_tracker
from flows.settings.schema import Settings
from models.errors import UserError
from tasks.core.context import RunContext
from tasks.core.finished_rounds import finished_rounds, folder_of, prune, rescore_round
from tasks.core.records import ModelRef, RoundRecord
from tasks.core.store import Store
from tasks.data.ingest.unusable_files import unusable


@dataclass(frozen=True)
class Summary:
    """What a federation came to.

    Attributes:
        run_id: The run's id, the name of its folder.
        digest: sha256 over the final global model's tensors in name order.
        rounds: Finished rounds.
        metrics: The last round's metrics on the pooled test set.
        mlflow_run_id: The run in MLflow, ``None`` without tracking.
        report: Path of the report.
        root: The run's folder.
        records: Every round.
        data: What of the source is not used: ``tasks.data.ingest.unusable_files.unusable``, and the data set's folder.
    """

    run_id: str
    digest: str
    rounds: int
    metrics: dict[str, float]
    mlflow_run_id: str | None
    report: str
    root: str
    records: list[RoundRecord] = field(repr=False)
    data: dict[str, Any] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """Plain values, without the rounds' records."""
        return {key: value for key, value in asdict(self).items() if key != "records"}


def federate(
    settings: Settings,
    data: DataPaths | None = None,
    *,
    run_id: str | None = None,
    out: Path | None = None,
    tags: dict[str, str] | None = None,
    progress: Progress | None = None,
) -> Summary:
    """Runs, or goes on with, a federation.

    Args:
        settings: Effective settings.
        data: Where data set and partition lie.
        run_id: A name of one's own for the run.
        out: Folder for the small outputs that DVC records; ``None`` leaves them out.
        tags: More tags for MLflow.
        progress: Told about stages and rounds.

    Raises:
        UserError: If settings, data, tracking or clients do not allow it. Finished rounds stay.
    """
    from tasks.tracking import settings as tracking_settings

    prepare_torch()
    progress = progress or Quiet()
    if settings.tracking.enabled:
        tracking_settings.check(settings.tracking, runs_root())
    data = data or DataPaths()
    with open_run(settings, data, run_id) as run:
        images = sum(run.clients.values())
        progress.note(f"data: {data.dataset}, {images} training images of {len(run.clients)} clients")
        for line in data_remarks(data):
            progress.note(f"note: {line}")
        progress.note(f"run: {run.root}")
        engine = make_engine(settings.federation.engine, settings.federation.workers)

        def work() -> Summary:
            return _federate(settings, run, engine, out, tags or {}, progress)

        if settings.federation.engine == "local":
            with stopping_on_interrupt():
                return work()
        title = f"{settings.federation.rounds} rounds of {settings.method.name} with {settings.model.name}"
        return in_flow("federate", title, work, settings.federation.workers)


def _federate(
    settings: Settings, run: Run, engine: Engine, out: Path | None, tags: dict[str, str], progress: Progress
) -> Summary:
    """The rounds one after the other, then the report; closes the MLflow run whatever happens."""
    store = Store(run.root)
    records = finished_rounds(store, settings.federation.rounds)
    if store.exists(folder_of(settings.federation.rounds + 1)):
        progress.note(f"more rounds are finished; results, report and MLflow are those of {len(records)}, as asked for")
    complete = len(records) == settings.federation.rounds and bool(records[-1].metrics)
    tracker = open_tracker(settings, run, tags, engine, complete)
    finished = False
    try:
        records = _rounds(settings, run, engine, tracker, progress, records)
        report = run.root / "report"
        progress.stage(0, "report", 0)
        engine.run("sample-predictions", "score images for the report", run.context, records[-1].model)
        engine.run("report", "report", run.root, report, settings.report)
        finished = True
    finally:
        if not finished:
            tracker.failed()
    if tracker.mlflow_run is not None:
        progress.stage(0, "models and report to MLflow", 0)
    tracker.finish(records, report)
    last = records[-1]
    if out is not None:
        export(run, settings, records, report, out)
    return Summary(
        run_id=run.id,
        digest=last.model.digest,
        rounds=last.round,
        metrics=last.metrics,
        mlflow_run_id=tracker.mlflow_run,
        report=str(report / "report.md"),
        root=str(run.root),
        records=records,
        data={"dataset": run.context.dataset, **unusable(Path(run.context.dataset))},
    )


def _rounds(
    settings: Settings, run: Run, engine: Engine, tracker: Tracker, progress: Progress, records: list[RoundRecord]
) -> list[RoundRecord]:
    """Finished rounds are taken, the others done; the last one is scored whatever ``evaluation.every`` says."""
    store, method = Store(run.root), load_method(settings.method.name)
    records = [*records[:-1], *(_scored_end(settings, run, engine, progress, record) for record in records[-1:])]
    for record in records:
        progress.round_done(record, found=True)
    last = records[-1] if records else None
    model = last.model if last else engine.run("initialise-model", "initial global model", run.context)
    states, server_state = (last.client_states, last.server_state) if last else ({}, None)
    for number in range(len(records) + 1, settings.federation.rounds + 1):
        fed = Federation(
            run.context,
            settings.federation,
            settings.method.chosen,
            run.clients,
            engine,
            number,
            states,
            progress,
            server_state,
        )
        record = one_round(fed, method.run_round, model, run.root, settings.federation.rounds)
        prune(store, record)
        tracker.round_done(record)
        progress.round_done(record)
        records.append(record)
        model, states, server_state = record.model, record.client_states, record.server_state
    if not store.exists(folder_of(records[-1].round + 1)):
        prune(store, records[-1])  # a process may have been killed before it did
    return records


def _scored_end(settings: Settings, run: Run, engine: Engine, progress: Progress, record: RoundRecord) -> RoundRecord:
    """The last finished round, scored if it is the end that was asked for and was not scored when it was made."""
    if record.round != settings.federation.rounds or record.metrics:
        return record
    progress.stage(record.round, "evaluate", 0)
    store = run.context.open_store()
    gone = [ref.uri for ref in record.personal_states.values() if not store.holds(ref)]
    if gone:
        raise UserError(
            f"round {record.round} was not scored when it was made, and the clients' own models of it are gone",
            where="federation.rounds",
            expected=f"a round that was scored (evaluation.every is {settings.evaluation.every}), or the last one",
            found=record.round,
            hint="choose such a round, or another --run-id to train it again",
        )
    score(engine, run.context, record, run.clients)
    return rescore_round(str(run.root), record)


def one_round(
    fed: Federation,
    run_round: Callable[[Federation, ModelRef], ModelRef],
    start: ModelRef,
    root: Path,
    rounds: int = 0,
) -> RoundRecord:
    """One round of a method: its stages, the evaluation of what came out, and the finished folder.

    Args:
        fed: The round.
        run_round: The method.
        start: The global model before it.
        root: The run's folder.
        rounds: Number of the last round, which is scored whatever ``evaluation.every`` says.
    """
    fed.record.model = run_round(fed, start)
    fed.record.server_state = fed.server_state
    fed.record.personal_states = dict(fed.personal_states)
    if fed.number % fed.context.evaluation.every == 0 or fed.number == rounds:
        fed.progress.stage(fed.number, "evaluate", 0)
        score(fed.engine, fed.context, fed.record, fed.clients)
    saved: RoundRecord = fed.engine.run("save-round", f"round {fed.number}: save", str(root), fed.record)
    return saved


def score(engine: Engine, context: RunContext, record: RoundRecord, clients: Mapping[str, int]) -> None:
    """Evaluates a round's global model, or the clients' own ones, and puts the result into its record."""
    title = f"round {record.round}: evaluate global model"
    result = engine.run("evaluate", title, context, record.model, record.personal_states, clients)
    record.metrics, record.per_class = result["metrics"], result.get("per_class", {})
    record.per_site, record.per_client = result.get("per_site", {}), result.get("per_client", {})
