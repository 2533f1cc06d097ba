"""R rounds of one method: what ``fedscene run``, the pipeline flow and ``dvc repro`` call.

A round that is finished is never done again: the same settings and data give the same run folder, and its
``rounds/NNNN`` say where to go on.
"""

import getpass
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from flows.engines import Engine, in_flow, make_engine
from flows.environment import prepare_torch, runs_root
from flows.federation import Federation, Progress
from flows.interrupt import stopping_on_interrupt
from flows.progress import Quiet
from flows.results import export, model_factory
from flows.rounds import load_method
from flows.runs import DataPaths, Run, open_run
from flows.settings import Settings, as_values, flat
from models.errors import UserError
from tasks.records import ModelRef, RoundRecord
from tasks.rounds import finished_rounds, folder_of, prune
from tasks.store import Store


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
    """

    run_id: str
    digest: str
    rounds: int
    metrics: dict[str, float]
    mlflow_run_id: str | None
    report: str
    root: str
    records: list[RoundRecord] = field(repr=False)

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
    from tasks import tracking_settings

    prepare_torch()
    progress = progress or Quiet()
    if settings.tracking.enabled:
        tracking_settings.check(settings.tracking, runs_root())
    data = data or DataPaths()
    with open_run(settings, data, run_id) as run:
        images = sum(run.clients.values())
        progress.note(f"data: {data.dataset}, {images} training images of {len(run.clients)} clients")
        progress.note(f"run: {run.root}")
        engine = make_engine(settings.federation.engine, settings.federation.workers)

        def work() -> Summary:
            return _federate(settings, run, engine, out, tags or {}, progress)

        if settings.federation.engine == "direct":
            with stopping_on_interrupt():
                return work()
        title = f"{settings.federation.rounds} rounds of {settings.method.name} with {settings.model.name}"
        return in_flow("federate", title, work, settings.federation.workers)


def _federate(
    settings: Settings, run: Run, engine: Engine, out: Path | None, tags: dict[str, str], progress: Progress
) -> Summary:
    """The rounds one after the other, then the report; closes the MLflow run whatever happens."""
    mlflow_run = _open_tracking(settings, run, tags)
    finished = False
    try:
        records = _rounds(settings, run, engine, mlflow_run, progress)
        report = run.root / "report"
        progress.stage(0, "report", 0)
        engine.run("sample-pictures", "score pictures for the report", run.context, records[-1].model)
        engine.run("report", "report", run.root, report, settings.report)
        _log_missing(settings, run, mlflow_run)
        finished = True
    finally:
        if mlflow_run and not finished:
            _finish_quietly(settings, mlflow_run)
    last = records[-1]
    if mlflow_run:
        progress.stage(0, "models and report to MLflow", 0)
        _finish_tracking(settings, run, mlflow_run, records, report)
    if out is not None:
        export(run, settings, records, report, out)
    return Summary(
        run_id=run.id,
        digest=last.model.digest,
        rounds=last.round,
        metrics=last.metrics,
        mlflow_run_id=mlflow_run,
        report=str(report / "report.md"),
        root=str(run.root),
        records=records,
    )


def _rounds(
    settings: Settings, run: Run, engine: Engine, mlflow_run: str | None, progress: Progress
) -> list[RoundRecord]:
    """Finished rounds are read, the others done."""
    store, method = Store(run.root), load_method(settings.method.name)
    records = finished_rounds(store, settings.federation.rounds)
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
        if mlflow_run:
            _track(settings, engine, run, mlflow_run, record)
        progress.round_done(record)
        records.append(record)
        model, states, server_state = record.model, record.client_states, record.server_state
    return records


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
    if fed.number % fed.context.evaluation.every == 0 or fed.number == rounds:
        fed.progress.stage(fed.number, "evaluate", 0)
        title = f"round {fed.number}: evaluate global model"
        result = fed.engine.run("evaluate", title, fed.context, fed.record.model, fed.overlays, fed.clients)
        fed.record.metrics, fed.record.per_class = result["metrics"], result.get("per_class", {})
        fed.record.per_site, fed.record.per_client = result.get("per_site", {}), result.get("per_client", {})
    saved: RoundRecord = fed.engine.run("save-round", f"round {fed.number}: save", str(root), fed.record)
    return saved


def _data_version(run: Run, here: Path) -> str:
    """DVC's version of the data when the run reads what DVC's stages made, else the digest of the partition."""
    from tasks import versioning

    versioned = Path(run.context.dataset).resolve() == (here / "data/dataset").resolve()
    return (versioning.data_version(here) if versioned else None) or run.data_digest


def _open_tracking(settings: Settings, run: Run, tags: dict[str, str]) -> str | None:
    """The MLflow run: found by our id on resume, else made."""
    if not settings.tracking.enabled:
        return None
    from tasks import tracking, versioning

    here = Path.cwd()
    commit, dirty = versioning.git_commit(here), versioning.git_dirty(here)
    own = {
        "fedscene.run_id": run.id,
        "fedscene.data_version": _data_version(run, here),
        "fedscene.data_digest": run.data_digest,
        "fedscene.git_commit": commit or "none",
        "fedscene.git_dirty": str(dirty).lower(),
        "fedscene.seed": str(settings.seed),
        "fedscene.method": settings.method.name,
        "fedscene.fingerprint": run.context.fingerprint,
        "fedscene.device": run.context.device,
        "mlflow.user": _user(),
        "mlflow.source.name": "fedscene",
        "mlflow.note.content": f"{load_method(settings.method.name).TITLE}. Network {settings.model.name}, "
        f"{len(run.clients)} clients, seed {settings.seed}. Report and plots: Artifacts, report/.",
    }
    params = {key: value for key, value in flat(as_values(settings)).items() if not key.startswith("tracking.")}
    return tracking.open_run(settings.tracking, runs_root(), run.id, params, own | tags)


def _user() -> str:
    """Who runs this; containers may have a user without a name."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "unknown"


def _track(settings: Settings, engine: Engine, run: Run, mlflow_run: str, record: RoundRecord) -> None:
    """Logs a finished round. A server that is away does not stop the run: the round is logged later."""
    folder = run.root / folder_of(record.round)
    try:
        title = f"round {record.round}: track"
        engine.run("track-round", title, settings.tracking, runs_root(), mlflow_run, record, folder)
    except UserError as error:
        import logging

        logging.getLogger(__name__).warning("round %d is not in MLflow yet: %s", record.round, error)


def _log_missing(settings: Settings, run: Run, mlflow_run: str | None) -> None:
    """Logs what an outage or a crash left out."""
    if mlflow_run:
        from tasks import tracking

        tracking.log_missing(settings.tracking, runs_root(), mlflow_run, run.root)


def _finish_quietly(settings: Settings, mlflow_run: str) -> None:
    """Marks the MLflow run as failed; the error that ended the run is what the user must see."""
    from tasks import tracking

    try:
        tracking.finish_run(settings.tracking, runs_root(), mlflow_run, "FAILED")
    except UserError as error:
        import logging

        logging.getLogger(__name__).warning("the MLflow run stays open: %s", error)


def _finish_tracking(settings: Settings, run: Run, mlflow_run: str, records: list[RoundRecord], report: Path) -> None:
    """Report and plots as artifacts, the last and the best round as MLflow models."""
    from tasks import tracking
    from tasks.summary import best_round

    best, last = best_round(records), records[-1].round
    models = {
        name: (number, model_factory(run.context, records[number - 1].model))
        for name, number in (("best", best), ("last", last))
    }
    tracking.finish_run(settings.tracking, runs_root(), mlflow_run, "FINISHED", [report], models)


def main() -> None:
    """``python -m flows.federate``: what the DVC stage runs, from ``params.yaml`` and ``data/``."""
    from flows.environment import prepare
    from flows.stages import run_stage

    prepare()
    run_stage("federate")


if __name__ == "__main__":
    main()
