"""MLflow's client and its errors, for the other modules of ``tasks/tracking``."""

import contextlib
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

from tasks.tracking.database import reconnect
from tasks.tracking.errors import LATER_HINT, quiet_mlflow, store_error

if TYPE_CHECKING:
    from mlflow.tracking import MlflowClient

# Set only where the user has not: no telemetry, 2 minutes instead of many for a server that hangs, no bars
CLIENT_DEFAULTS = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "3",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "20",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
}


def make_client(uri: str) -> "MlflowClient":
    """Return a client for a tracking URI.

    Raises:
        FileNotFoundError: If the URI names an SQLite file that does not exist.
    """
    for name, value in CLIENT_DEFAULTS.items():
        os.environ.setdefault(name, value)
    from mlflow.tracking import MlflowClient

    quiet_mlflow()
    reconnect(uri)
    return MlflowClient(uri)


@contextlib.contextmanager
def user_errors(uri: str, hint: str | None = LATER_HINT) -> Iterator[None]:
    """Turn errors of MLflow and the database under it into a ``UserError``."""
    from alembic.util.exc import CommandError
    from mlflow.exceptions import MlflowException
    from sqlalchemy.exc import SQLAlchemyError

    try:
        yield
    except (MlflowException, SQLAlchemyError, CommandError, ImportError, OSError) as error:
        raise store_error(uri, error, hint) from error
