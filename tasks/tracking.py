"""MLflow: one run per federation, step = round. The only module that imports MLflow.

Everything is derived from finished round folders, so that whatever a crash left out can be logged later and
nothing is logged twice. One process writes to a run at a time. The functions assume that tracking is enabled;
whoever calls them looks at ``TrackingSettings.enabled``.
"""

import contextlib
import logging
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from models.errors import UserError
from tasks import tracking_settings as own
from tasks.records import RoundRecord
from tasks.summary import load_records, round_metrics
from tasks.tracking_settings import TrackingSettings, resolve_uri

if TYPE_CHECKING:
    import numpy as np
    import torch
    from mlflow.entities import Run
    from mlflow.models import Model
    from mlflow.tracking import MlflowClient

    # Makes a network in eval mode, an example of its input [N,3,S,S], and what its user must know (labels, size)
    ModuleFactory = Callable[[], tuple[torch.nn.Module, np.ndarray, Mapping[str, Any]]]

log = logging.getLogger(__name__)

METRICS_PER_BATCH, PARAMS_PER_BATCH = 1000, 100  # MLflow's limits


def open_run(
    settings: TrackingSettings, runs_root: Path, run_name: str, params: Mapping[str, Any], tags: Mapping[str, str]
) -> str:
    """The MLflow run of our run ``tags["fedscene.run_id"]``: the one that has this tag, else a new one.

    Args:
        settings: Where to.
        runs_root: Database and artifacts are there unless ``uri`` says otherwise.
        run_name: Name of a new run.
        params: Flat settings. MLflow never changes a param: on resume a differing value goes to the
            tag ``fedscene.changed_params``. A value over 6,000 signs is cut and named in ``fedscene.cut_params``.
        tags: Data version, commit, seed and what else may change; overwritten on resume.

    Returns the MLflow run id.

    Raises:
        UserError: If the store fails, or the experiment was deleted.
    """
    our_id = tags[own.RUN_TAG]
    assert "'" not in our_id, "it becomes part of a query"
    uri = resolve_uri(settings, runs_root)
    with _user_errors(uri, own.OTHERWISE), own.one_initialiser(uri):
        client = _client(uri)
        experiment = _experiment(client, settings.experiment, own.artifact_location(uri, runs_root))
        found = client.search_runs([experiment], f"tags.`{own.RUN_TAG}` = '{our_id}'", max_results=1)
        run = found[0] if found else client.create_run(experiment, run_name=run_name, tags={own.RUN_TAG: our_id})
        if found:
            client.update_run(run.info.run_id, status="RUNNING")
        _log_params(client, run, params, tags)
        return str(run.info.run_id)


def _log_params(client: "MlflowClient", run: "Run", params: Mapping[str, Any], tags: Mapping[str, str]) -> None:
    from mlflow.entities import Param, RunTag

    values, tags = own.plan_params(params, run.data.params, tags)
    client.log_batch(run.info.run_id, tags=[RunTag(key, value) for key, value in tags.items()])
    new = [Param(key, value) for key, value in values.items()]
    for start in range(0, len(new), PARAMS_PER_BATCH):
        client.log_batch(run.info.run_id, params=new[start : start + PARAMS_PER_BATCH])


def log_round(
    settings: TrackingSettings, runs_root: Path, mlflow_run_id: str, record: RoundRecord, round_dir: Path
) -> bool:
    """Logs one finished round: its metrics in one batch, then its files, then the tag that says it is logged.

    Rounds come in order. A kill between the three is repaired by calling again: metrics that are already
    there at this step are not sent a second time (MLflow would keep both points).
    Weights of rounds beyond ``keep_rounds`` are deleted, their ``round.json`` stays. Where the artifact store
    cannot delete, they stay too and the tag ``fedscene.not_pruned`` says so.

    Returns whether the round was new.

    Raises:
        UserError: If the store or the round's folder fails.
    """
    from mlflow.entities import RunTag

    uri = resolve_uri(settings, runs_root)
    with _user_errors(uri):
        client = _client(uri)
        run = client.get_run(mlflow_run_id)
        tags = run.data.tags
        if record.round <= int(tags.get(own.LAST_TAG, 0)):
            return False
        _log_metrics(client, mlflow_run_id, record, int((round_dir / "round.json").stat().st_mtime * 1000))
        weights = ["model.safetensors", *sorted(path.name for path in round_dir.glob("prototype-*.safetensors"))]
        for name in ["round.json", *(weights if settings.log_models else [])]:
            client.log_artifact(mlflow_run_id, str(round_dir / name), f"rounds/{record.round:04d}")
        new = {own.LAST_TAG: str(record.round), **own.best_tags(tags, record)}
        # In-order logging: only these two can have fallen out of what is kept
        candidates = {record.round - settings.keep_rounds, int(tags.get(own.BEST_TAG, 0))}
        kept = range(record.round - settings.keep_rounds + 1, record.round + 1)
        for number in sorted(candidates - {int(new[own.BEST_TAG]), *kept}):
            if number >= 1 and not _delete_weights(client, run, uri, f"rounds/{number:04d}"):
                new["fedscene.not_pruned"] = "the artifact store cannot delete; remove old rounds there"
        client.log_batch(mlflow_run_id, tags=[RunTag(key, value) for key, value in new.items()])
    return True


def log_missing(settings: TrackingSettings, runs_root: Path, mlflow_run_id: str, run_root: Path) -> list[int]:
    """Logs every finished round of ``run_root`` that is not in MLflow yet, in order; returns their numbers."""
    return [
        record.round
        for record in load_records(run_root)
        if log_round(settings, runs_root, mlflow_run_id, record, run_root / "rounds" / f"{record.round:04d}")
    ]


def _log_metrics(client: "MlflowClient", run_id: str, record: RoundRecord, timestamp: int) -> None:
    from mlflow.entities import Metric

    metrics = [Metric(key, value, timestamp, record.round) for key, value in round_metrics(record).items()]
    for start in range(0, len(metrics), METRICS_PER_BATCH):
        batch = metrics[start : start + METRICS_PER_BATCH]
        if all(point.step != record.round for point in client.get_metric_history(run_id, batch[0].key)):
            client.log_batch(run_id, metrics=batch)


def _delete_weights(client: "MlflowClient", run: "Run", uri: str, folder: str) -> bool:
    from mlflow.exceptions import MlflowException
    from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository

    try:
        repository = get_artifact_repository(run.info.artifact_uri, tracking_uri=uri)
        for entry in client.list_artifacts(run.info.run_id, folder):
            if entry.path.endswith(".safetensors"):
                repository.delete_artifacts(entry.path)
    except (NotImplementedError, MlflowException, OSError) as error:
        log.warning("MLflow: the weights in %s were not deleted: %s", folder, error)
        return False
    return True


def finish_run(
    settings: TrackingSettings,
    runs_root: Path,
    mlflow_run_id: str,
    status: str,
    artifacts: Sequence[Path] = (),
    models: "Mapping[str, tuple[int, ModuleFactory]] | None" = None,
) -> dict[str, str]:
    """Puts report and plots under ``report/``, logs the networks as MLflow models, and closes the run.

    A model is an exported graph (``pt2``): it loads without our code and without pickle, takes any batch size and
    the dtype of its example (also with MLFLOW_ALLOW_PICKLE_DESERIALIZATION=false). One that cannot be exported is
    named in the tag ``fedscene.model_error.<name>``; its weights are in the round's folder all the same.
    ``status`` FINISHED, FAILED or KILLED; ``artifacts`` files and folders, a folder's content keeps its names;
    ``models`` name (``last``, ``best``) -> (round, factory), of which nothing is logged when ``log_models`` is off.

    Returns name -> model URI ``models:/<id>``, also in the tag ``fedscene.model.<name>``; a UserError if the store
    fails or an artifact is missing, after the run was closed where it can be.
    """
    assert status in ("FINISHED", "FAILED", "KILLED"), status
    uri = resolve_uri(settings, runs_root)
    done: dict[str, tuple[int, str]] = {}
    with _user_errors(uri):
        client = _client(uri)
        try:
            for path in artifacts:
                put = client.log_artifacts if path.is_dir() else client.log_artifact
                put(mlflow_run_id, str(path), "report")
            for name, (number, factory) in (models or {}).items() if settings.log_models else ():
                same = next((model for round_, model in done.values() if round_ == number), None)
                model = same or _log_model(client, mlflow_run_id, name, number, factory)
                if model:
                    done[name] = (number, model)
                    client.set_tag(mlflow_run_id, f"fedscene.model.{name}", model)
        finally:
            client.set_terminated(mlflow_run_id, status)
    return {name: model for name, (_, model) in done.items()}


def log_table(settings: TrackingSettings, runs_root: Path, mlflow_run_id: str, metrics: Mapping[str, float]) -> None:
    """A table's numbers into its run; those that have not changed are not repeated. UserError if the store fails."""
    uri = resolve_uri(settings, runs_root)
    with _user_errors(uri):
        client = _client(uri)
        old = client.get_run(mlflow_run_id).data.metrics
        for key in sorted(key for key in metrics if old.get(key) != metrics[key]):
            client.log_metric(mlflow_run_id, key, metrics[key])


def _log_model(client: "MlflowClient", run_id: str, name: str, number: int, factory: "ModuleFactory") -> str | None:
    from mlflow.entities import LoggedModelOutput
    from mlflow.exceptions import MlflowException
    from mlflow.models import Model

    module, example, metadata = factory()
    experiment = client.get_run(run_id).info.experiment_id
    model = client.create_logged_model(experiment, name=name, source_run_id=run_id, tags={"round": str(number)})
    status: Literal["READY", "FAILED"] = "FAILED"
    try:
        with tempfile.TemporaryDirectory(prefix="fedscene-") as folder:
            about = Model(model_id=model.model_id, run_id=run_id, metadata=dict(metadata))
            _export(module, example, Path(folder) / name, about)
            client.log_model_artifacts(model.model_id, str(Path(folder) / name))
        status = "READY"
    except (RuntimeError, ValueError, TypeError, AttributeError, MlflowException) as error:
        # What torch.export refuses comes as any of these; a finished training must not fail for it
        log.warning("MLflow: the network of round %d cannot be exported: %s", number, error)
        client.set_tag(run_id, f"fedscene.model_error.{name}", f"{type(error).__name__}: {error}"[: own.TAG_LENGTH])
        return None
    finally:
        client.finalize_logged_model(model.model_id, status)
    client.log_outputs(run_id, [LoggedModelOutput(model.model_id, step=number)])
    return str(model.model_uri)


def _export(module: "torch.nn.Module", example: "np.ndarray", folder: Path, about: "Model") -> None:
    import mlflow.pytorch
    import numpy as np
    import torch
    from mlflow.models import ModelSignature
    from mlflow.types.schema import Schema, TensorSpec

    if len(example) == 1:  # torch.export takes a batch of one for a constant
        example = np.concatenate([example, example])
    module = module.cpu().eval()  # an exported graph cannot be moved to another device
    with torch.no_grad():
        output = module(torch.from_numpy(example)).numpy()
    specs = [Schema([TensorSpec(array.dtype, (-1, *array.shape[1:]))]) for array in (example, output)]
    mlflow.pytorch.save_model(
        module,
        str(folder),
        signature=ModelSignature(inputs=specs[0], outputs=specs[1]),
        input_example=example,
        # Given, as MLflow takes 15-20 s to find them out; without the local part (+cu130) that no index has
        pip_requirements=[f"torch=={torch.__version__.split('+')[0]}", f"numpy=={np.__version__}"],
        serialization_format="pt2",
        mlflow_model=about,
    )


def find_data_version(settings: TrackingSettings, runs_root: Path, run_id: str) -> str:
    """The version of the data that a run (MLflow's id or ours) was trained on; a UserError if no run has one."""
    uri = resolve_uri(settings, runs_root)
    with _user_errors(uri, hint=None):
        client, query = _client(uri), f"tags.`{own.RUN_TAG}` = '{run_id.replace(chr(39), '')}'"
        experiment = client.get_experiment_by_name(settings.experiment)
        found = client.search_runs([experiment.experiment_id], query, max_results=1) if experiment else []
        tags = (found[0] if found else client.get_run(run_id)).data.tags
    if own.DATA_TAG not in tags:
        where, hint = f"run {run_id}", "it was started outside a DVC repository"
        raise UserError("The run names no data version", where=where, expected=f"a tag {own.DATA_TAG}", hint=hint)
    return str(tags[own.DATA_TAG])


def _client(uri: str) -> "MlflowClient":
    for name, value in own.CLIENT_DEFAULTS.items():
        os.environ.setdefault(name, value)
    from mlflow.tracking import MlflowClient

    logging.getLogger("mlflow.store.db.utils").setLevel(logging.WARNING)
    return MlflowClient(uri)


@contextlib.contextmanager
def _user_errors(uri: str, hint: str | None = own.LATER) -> Iterator[None]:
    from alembic.util.exc import CommandError
    from mlflow.exceptions import MlflowException
    from sqlalchemy.exc import SQLAlchemyError

    try:
        yield
    except (MlflowException, SQLAlchemyError, CommandError, ImportError, OSError) as error:
        raise own.store_error(uri, error, hint) from error


def _experiment(client: "MlflowClient", name: str, location: str | None) -> str:
    from mlflow.exceptions import MlflowException

    found = client.get_experiment_by_name(name)
    if found is None:
        try:
            return str(client.create_experiment(name, artifact_location=location, tags=own.EXPERIMENT_TAGS))
        except MlflowException:
            if (found := client.get_experiment_by_name(name)) is None:  # else another client was faster
                raise
    if found.lifecycle_stage != "active":
        hint = f"mlflow experiments restore --experiment-id {found.experiment_id}, or another name"
        raise UserError("The MLflow experiment was deleted", where=f"tracking.experiment: {name}", hint=hint)
    return str(found.experiment_id)
