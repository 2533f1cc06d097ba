"""MLflow: one run per federation, step = round. Only modules of ``tasks/tracking`` import MLflow.

Everything is derived from finished round folders and from what MLflow has, so that what a crash or an outage left out
can be logged later and nothing is logged twice. One process writes to a run at a time. The functions assume that
``TrackingSettings.enabled`` is set.
"""

import logging
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from models.errors import UserError
from tasks.core.records import RoundRecord
from tasks.core.round_summary import ROUND_MARKER, load_records, round_metrics
from tasks.tracking.artifacts import delete_weights, log_report
from tasks.tracking.database import database_ready
from tasks.tracking.errors import CORRECT_URI_HINT
from tasks.tracking.logged_rounds import logged_check, logged_rounds, logged_steps
from tasks.tracking.mlflow_client import make_client, user_errors
from tasks.tracking.settings import TrackingSettings
from tasks.tracking.tags import (
    BEST_TAG,
    EXPERIMENT_TAGS,
    LAST_TAG,
    LOGGED_TAG,
    ROUNDS_TAG,
    RUN_TAG,
    STOPPED_TAG,
    best_tags,
    format_ranges,
    plan_params,
)
from tasks.tracking.uri import artifact_location, resolve_uri

if TYPE_CHECKING:
    from mlflow.entities import Run
    from mlflow.tracking import MlflowClient

    from tasks.tracking.logged_models import ModuleFactory

log = logging.getLogger(__name__)

METRICS_PER_BATCH, PARAMS_PER_BATCH = 1000, 100  # MLflow's limits


def open_run(
    settings: TrackingSettings,
    runs_root: Path,
    run_name: str,
    params: Mapping[str, Any],
    tags: Mapping[str, str],
    rounds: int | None = None,
    complete: bool = False,
) -> str:
    """Return the MLflow run with the tag ``tags["fedscene.run_id"]``; create it if there is none.

    Args:
        settings: The tracking settings.
        runs_root: Folder of database and artifacts unless ``uri`` names another place.
        run_name: Name of a new run.
        params: Flat settings. MLflow never changes a param: on resume a differing value goes to the tag
            ``fedscene.changed_params``. A value over 6,000 characters is cut and named in ``fedscene.cut_params``.
        tags: Data version, commit, seed and others that may change; overwritten on resume.
        rounds: Rounds that are asked for. If MLflow has more, the result after these rounds becomes a separate run
            with the tag ``fedscene.rounds``, as a logged step cannot be removed.
        complete: All rounds are finished, so a run that MLflow has as finished stays as it is.

    Returns:
        The MLflow run id.

    Raises:
        UserError: If the store fails, or the experiment was deleted.
    """
    our_id = tags[RUN_TAG]
    assert "'" not in our_id, "it becomes part of a query"
    uri = resolve_uri(settings, runs_root)
    with user_errors(uri, CORRECT_URI_HINT), database_ready(uri):
        client = make_client(uri)
        experiment = _experiment(client, settings.experiment, artifact_location(uri, runs_root))
        found, shorter = _find(client, experiment, our_id, rounds)
        if found is None:
            first = {RUN_TAG: our_id} | ({ROUNDS_TAG: str(rounds)} if shorter else {})
            name = f"{run_name}-{rounds}-rounds" if shorter else run_name
            found = client.create_run(experiment, run_name=name, tags=first)
        elif complete and found.info.status == "FINISHED":
            tags = {key: value for key, value in tags.items() if key not in found.data.tags}
        else:
            client.update_run(found.info.run_id, status="RUNNING")
        _log_params(client, found, params, tags)
        return str(found.info.run_id)


def _find(client: "MlflowClient", experiment: str, our_id: str, rounds: int | None) -> "tuple[Run | None, bool]":
    """Return the MLflow run of our run, and whether it is (or would be) the separate one of fewer rounds."""
    runs = client.search_runs([experiment], f"tags.`{RUN_TAG}` = '{our_id}'", max_results=1000)
    whole = next((run for run in runs if ROUNDS_TAG not in run.data.tags), None)
    if whole is None or rounds is None or max(logged_rounds(client, whole), default=0) <= rounds:
        return whole, False
    return next((run for run in runs if run.data.tags.get(ROUNDS_TAG) == str(rounds)), None), True


def _log_params(client: "MlflowClient", run: "Run", params: Mapping[str, Any], tags: Mapping[str, str]) -> None:
    from mlflow.entities import Param, RunTag

    values, tags = plan_params(params, run.data.params, tags)
    changed = [RunTag(key, value) for key, value in tags.items() if run.data.tags.get(key) != value]
    if changed:
        client.log_batch(run.info.run_id, tags=changed)
    new = [Param(key, value) for key, value in values.items()]
    for start in range(0, len(new), PARAMS_PER_BATCH):
        client.log_batch(run.info.run_id, params=new[start : start + PARAMS_PER_BATCH])


def log_round(
    settings: TrackingSettings, runs_root: Path, mlflow_run_id: str, record: RoundRecord, round_dir: Path
) -> bool:
    """Log one finished round: its metrics in one batch, then its files, then the tags that mark it as logged.

    The tag holds a set of rounds, so an earlier one can be logged after a later one. After a kill between the three,
    another call completes the round: metrics that are there at this step are not sent again (MLflow would store both
    points). A round that was evaluated after it was logged gets its metrics added.
    Weights of rounds beyond ``keep_rounds`` are deleted, their ``round.json`` stays. If the artifact store cannot
    delete, they stay too and get the tag ``fedscene.not_pruned``.

    Returns:
        Whether anything was new.

    Raises:
        UserError: If the store or the round's folder fails.
    """
    uri = resolve_uri(settings, runs_root)
    with user_errors(uri):
        client = make_client(uri)
        run = client.get_run(mlflow_run_id)
        if logged_check(client, run)(record):
            return False
        _log_round(client, uri, settings, run, record, round_dir)
    return True


def _log_round(
    client: "MlflowClient",
    uri: str,
    settings: TrackingSettings,
    run: "Run",
    record: RoundRecord,
    round_dir: Path,
) -> None:
    from mlflow.entities import RunTag

    run_id, tags = run.info.run_id, run.data.tags
    all_logged = sorted(logged_rounds(client, run) | {record.round})
    log_metrics(client, run_id, record, int((round_dir / "round.json").stat().st_mtime * 1000))
    new = {LAST_TAG: str(all_logged[-1]), **best_tags(tags, record)}
    kept = {int(new[BEST_TAG]), *all_logged[-settings.keep_rounds :]}
    weights = sorted(path.name for path in round_dir.glob("model*.safetensors"))
    for name in ["round.json", *(weights if settings.log_models and record.round in kept else [])]:
        client.log_artifact(run_id, str(round_dir / name), f"rounds/{record.round:04d}")
    # Only these may have become superfluous; the tag is written last, so a kill before it repeats this
    superfluous = {*all_logged[: -settings.keep_rounds][-1:], record.round, int(tags.get(BEST_TAG, 0))}
    for number in sorted(superfluous - kept):
        if number >= 1 and not delete_weights(client, run, uri, f"rounds/{number:04d}"):
            new["fedscene.not_pruned"] = "the artifact store cannot delete; remove old rounds there"
    new[LOGGED_TAG] = format_ranges(all_logged)
    client.log_batch(run_id, tags=[RunTag(key, value) for key, value in new.items()])


def log_missing(
    settings: TrackingSettings, runs_root: Path, mlflow_run_id: str, run_root: Path, rounds: int | None = None
) -> list[int]:
    """Log every finished round of ``run_root``, up to ``rounds``, that MLflow lacks, in order.

    A round that MLflow has without its metrics, as it was evaluated later, counts as missing.

    Returns:
        Their numbers.

    Raises:
        UserError: If the store or a round's folder fails.
    """
    uri = resolve_uri(settings, runs_root)
    new = []
    with user_errors(uri):
        client = make_client(uri)
        run = client.get_run(mlflow_run_id)
        is_logged = logged_check(client, run)
        for record in [record for record in load_records(run_root, rounds) if not is_logged(record)]:
            folder = run_root / "rounds" / f"{record.round:04d}"
            _log_round(client, uri, settings, run, record, folder)
            new.append(record.round)
            run = client.get_run(mlflow_run_id)
    return new


def log_metrics(client: "MlflowClient", run_id: str, record: RoundRecord, timestamp: int) -> None:
    """Log the round's metrics that MLflow does not have at its step."""
    from mlflow.entities import Metric

    metrics = round_metrics(record)
    if record.round in logged_steps(client, run_id, ROUND_MARKER):  # killed after a batch, or evaluated later
        missing = [key for key in metrics if record.round not in logged_steps(client, run_id, key)]
        metrics = {key: metrics[key] for key in missing}
    points = [Metric(key, value, timestamp, record.round) for key, value in metrics.items()]
    for start in range(0, len(points), METRICS_PER_BATCH):
        client.log_batch(run_id, metrics=points[start : start + METRICS_PER_BATCH])


def finish_run(
    settings: TrackingSettings,
    runs_root: Path,
    mlflow_run_id: str,
    status: str,
    artifacts: Sequence[Path] = (),
    models: "Mapping[str, tuple[int, ModuleFactory]] | None" = None,
    stopped: str | None = None,
) -> dict[str, str]:
    """Log report and plots under ``report/`` and the networks as MLflow models, then close the run.

    What is there already is not sent again, so finishing a finished run changes nothing. A model is an exported graph
    (``pt2``): it loads without our code and without pickle, takes any batch size and the dtype of its example (also
    with MLFLOW_ALLOW_PICKLE_DESERIALIZATION=false). One that cannot be exported is named in the tag
    ``fedscene.model_error.<name>``; its weights are still in the round's folder.

    Args:
        settings: The tracking settings.
        runs_root: The folder of runs.
        mlflow_run_id: The run's id in MLflow.
        status: ``FINISHED``, ``FAILED`` or ``KILLED``.
        artifacts: Files and folders; the files of a folder keep their names.
        models: Name (``last``, ``best``) -> (round, factory); none is logged if ``log_models`` is off.
        stopped: Why a finished run ended before its last round, for the tag ``fedscene.stopped``; ``None``: it did not.

    Returns:
        Name -> model URI ``models:/<id>``, which the tag ``fedscene.model.<name>`` has too.

    Raises:
        UserError: If the store fails or an artifact is missing, after closing the run if that is possible.
    """
    from tasks.tracking.logged_models import log_models

    assert status in ("FINISHED", "FAILED", "KILLED"), status
    uri = resolve_uri(settings, runs_root)
    with user_errors(uri):
        client = make_client(uri)
        run = client.get_run(mlflow_run_id)
        try:
            if status == "FINISHED":
                _tag_end(client, run, stopped)
            log_report(client, run, artifacts)
            return log_models(client, run, models) if models and settings.log_models else {}
        finally:
            if run.info.status != status:
                client.set_terminated(mlflow_run_id, status)


def _tag_end(client: "MlflowClient", run: "Run", stopped: str | None) -> None:
    """Set the tag of a run that was stopped; remove it from one that went on after that."""
    if stopped is None and STOPPED_TAG in run.data.tags:
        client.delete_tag(run.info.run_id, STOPPED_TAG)
    elif stopped is not None and run.data.tags.get(STOPPED_TAG) != stopped:
        client.set_tag(run.info.run_id, STOPPED_TAG, stopped)


def log_table(settings: TrackingSettings, runs_root: Path, mlflow_run_id: str, metrics: Mapping[str, float]) -> None:
    """Log a table's metrics to its run, except unchanged ones.

    Raises:
        UserError: If the store fails.
    """
    uri = resolve_uri(settings, runs_root)
    with user_errors(uri):
        client = make_client(uri)
        old = client.get_run(mlflow_run_id).data.metrics
        for key, value in sorted(metrics.items()):
            both_nan = math.isnan(value) and math.isnan(old.get(key, 0.0))
            if old.get(key) != value and not both_nan:
                client.log_metric(mlflow_run_id, key, value)


def _experiment(client: "MlflowClient", name: str, location: str | None) -> str:
    from mlflow.exceptions import MlflowException

    found = client.get_experiment_by_name(name)
    if found is None:
        try:
            return str(client.create_experiment(name, artifact_location=location, tags=EXPERIMENT_TAGS))
        except MlflowException:
            if (found := client.get_experiment_by_name(name)) is None:  # else another client was faster
                raise
    if found.lifecycle_stage != "active":
        hint = f"mlflow experiments restore --experiment-id {found.experiment_id}, or another name"
        raise UserError("the MLflow experiment was deleted", where=f"tracking.experiment: {name}", hint=hint)
    return str(found.experiment_id)
