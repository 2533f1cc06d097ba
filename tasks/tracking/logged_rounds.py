"""What MLflow really holds of a run's rounds."""

import logging
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING

from tasks.core.records import RoundRecord
from tasks.core.round_summary import ROUND_MARKER
from tasks.tracking.tags import LAST_TAG, LOGGED_TAG, numbers_of

if TYPE_CHECKING:
    from mlflow.entities import Run
    from mlflow.tracking import MlflowClient

log = logging.getLogger(__name__)


def logged_rounds(client: "MlflowClient", run: "Run") -> set[int]:
    """The rounds that MLflow holds whole: metrics, files, and the tag that is written after both.

    Earlier versions wrote the last one's number only, and left rounds out before it; there MLflow's own steps say it.
    """
    tags = run.data.tags
    if LOGGED_TAG in tags:
        return numbers_of(tags[LOGGED_TAG])
    last = int(tags.get(LAST_TAG, 0))
    return {step for step in steps_of(client, run.info.run_id, ROUND_MARKER) if step <= last} if last else set()


def steps_of(client: "MlflowClient", run_id: str, key: str) -> set[int]:
    """The steps at which MLflow holds a value of a metric."""
    return {point.step for point in client.get_metric_history(run_id, key)}


def holds(client: "MlflowClient", run: "Run") -> Callable[[RoundRecord], bool]:
    """A function that says whether MLflow holds all of a round; one that was scored later may lack its scores."""
    logged = logged_rounds(client, run)
    steps = cache(lambda key: steps_of(client, run.info.run_id, key) if key in run.data.metrics else set())

    def held(record: RoundRecord) -> bool:
        score = next(iter(record.metrics), None)
        return record.round in logged and (score is None or record.round in steps(score))

    return held


def delete_weights(client: "MlflowClient", run: "Run", uri: str, folder: str) -> bool:
    """Deletes the weights in one folder of a run's artifacts; whether the artifact store could."""
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
