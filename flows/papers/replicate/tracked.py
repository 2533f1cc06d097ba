"""The run of a table in MLflow: rows are its children, its files are artifacts."""

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from flows.engine.environment import runs_root
from models.errors import UserError

if TYPE_CHECKING:
    from tasks.tracking.settings import TrackingSettings


def open_table(
    settings: "TrackingSettings", table: str, scale: str, tag: str, note: str, params: Mapping[str, str]
) -> str | None:
    """Open the run of a table, the same one on resume; ``None`` if tracking is off.

    Args:
        settings: The tracking settings.
        table: Name of the table.
        scale: small or full.
        tag: Name of the run, one for equal tables.
        note: Description for the reader.
        params: Its parameters.

    Raises:
        UserError: If MLflow cannot be used.
    """
    if not settings.enabled:
        return None
    from tasks.tracking import mlflow_runs
    from tasks.tracking.availability import check_available
    from tasks.tracking.tags import RUN_TAG

    check_available(settings, runs_root())
    tags = {
        RUN_TAG: tag,
        "fedscene.table": table,
        "fedscene.scale": scale,
        "mlflow.source.name": "fedscene",
        "mlflow.note.content": note,
    }
    return mlflow_runs.open_run(settings, runs_root(), tag, params, tags)


def row_tags(table: str, row: str, scale: str, parent: str | None) -> dict[str, str]:
    """Return the tags of a row's run: table, row, scale, and the table's run as its parent."""
    tags = {"fedscene.table": table, "fedscene.row": row, "fedscene.scale": scale}
    return tags | ({"mlflow.parentRunId": parent} if parent is not None else {})


def close_table(
    settings: "TrackingSettings",
    parent: str | None,
    metrics: Mapping[str, float],
    files: Sequence[Path],
    finished: bool,
) -> None:
    """Log the table and its numbers to MLflow. They are on disk as well, so an unreachable server is only a warning."""
    if parent is None:
        return
    from tasks.tracking import mlflow_runs

    try:
        status = "FINISHED" if finished else "FAILED"
        mlflow_runs.log_table(settings, runs_root(), parent, metrics)
        mlflow_runs.finish_run(settings, runs_root(), parent, status, files)
    except UserError as error:
        logging.getLogger(__name__).warning("the table is not in MLflow: %s", error)
