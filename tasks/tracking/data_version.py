"""The version of the data that a run was trained on, as its tag in MLflow names it."""

from pathlib import Path

from models.errors import UserError
from tasks.tracking.mlflow_client import make_client, user_errors
from tasks.tracking.settings import TrackingSettings
from tasks.tracking.tags import DATA_TAG, RUN_TAG
from tasks.tracking.uri import resolve_uri


def find_data_version(settings: TrackingSettings, runs_root: Path, run_id: str) -> str:
    """Return the version of the data that a run (MLflow's id or ours) was trained on.

    Raises:
        UserError: If there is no such run, or it has no data version.
    """
    uri = resolve_uri(settings, runs_root)
    with user_errors(uri, hint=None):
        client, query = make_client(uri), f"tags.`{RUN_TAG}` = '{run_id}'"
        experiment = client.get_experiment_by_name(settings.experiment) if "'" not in run_id else None  # no id of ours
        found = client.search_runs([experiment.experiment_id], query, max_results=1) if experiment else []
        tags = (found[0] if found else client.get_run(run_id)).data.tags
    if DATA_TAG not in tags:
        where, hint = f"run {run_id}", "it was started outside a DVC repository"
        raise UserError("the run has no data version", where=where, expected=f"a tag {DATA_TAG}", hint=hint)
    return str(tags[DATA_TAG])
