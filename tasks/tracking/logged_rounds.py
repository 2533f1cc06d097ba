"""Which of a run's rounds MLflow has."""

import logging
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING

from tasks.core.records import RoundRecord
from tasks.core.round_summary import ROUND_MARKER
from tasks.tracking.tags import LAST_TAG, LOGGED_TAG, parse_ranges

if TYPE_CHECKING:
    from mlflow.entities import Run
    from mlflow.tracking import MlflowClient

log = logging.getLogger(__name__)


def logged_rounds(client: "MlflowClient", run: "Run") -> set[int]:
    """Return the rounds that MLflow has completely: metrics, files, and the tag that is written after both.

    Earlier releases tagged the last round only and may have skipped rounds before it; there MLflow's steps count.
    """
    tags = run.data.tags
    if LOGGED_TAG in tags:
        return parse_ranges(tags[LOGGED_TAG])
    last = int(tags.get(LAST_TAG, 0))
    return {step for step in logged_steps(client, run.info.run_id, ROUND_MARKER) if step <= last} if last else set()


def logged_steps(client: "MlflowClient", run_id: str, key: str) -> set[int]:
    """Return the steps at which MLflow has a value of a metric."""
    return {point.step for point in client.get_metric_history(run_id, key)}


def logged_check(client: "MlflowClient", run: "Run") -> Callable[[RoundRecord], bool]:
    """Return a function that tells whether MLflow has all of a round, with its metrics if it was evaluated."""
    logged = logged_rounds(client, run)
    steps = cache(lambda key: logged_steps(client, run.info.run_id, key) if key in run.data.metrics else set())

    def is_logged(record: RoundRecord) -> bool:
        metric = next(iter(record.metrics), None)
        return record.round in logged and (metric is None or record.round in steps(metric))

    return is_logged
