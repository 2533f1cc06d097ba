"""Files of a run in MLflow: the report is logged if it changed, weights of old rounds are deleted."""

import hashlib
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tasks.tracking.tags import REPORT_TAG

if TYPE_CHECKING:
    from mlflow.entities import Run
    from mlflow.tracking import MlflowClient

log = logging.getLogger(__name__)


def log_report(client: "MlflowClient", run: "Run", artifacts: Sequence[Path]) -> None:
    """Log files and folders to ``report/``, unless they are unchanged."""
    if not artifacts:
        return
    total = hashlib.sha256()
    for path in artifacts:
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            if file.is_file() or not path.is_dir():
                name = file.relative_to(path if path.is_dir() else path.parent).as_posix()
                total.update(f"{name}|".encode())
                total.update(file.read_bytes())
    if run.data.tags.get(REPORT_TAG) == total.hexdigest():
        return
    for path in artifacts:
        log_files = client.log_artifacts if path.is_dir() else client.log_artifact
        log_files(run.info.run_id, str(path), "report")
    client.set_tag(run.info.run_id, REPORT_TAG, total.hexdigest())


def delete_weights(client: "MlflowClient", run: "Run", uri: str, folder: str) -> bool:
    """Delete the weights in one folder of a run's artifacts; return whether the artifact store can."""
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
