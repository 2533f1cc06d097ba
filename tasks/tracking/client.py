"""MLflow's client and its errors, for the other modules of tracking."""

import contextlib
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

from tasks.tracking import settings as own
from tasks.tracking.database import reconnect

if TYPE_CHECKING:
    from mlflow.tracking import MlflowClient


def client_of(uri: str) -> "MlflowClient":
    """A client of an address.

    Raises:
        FileNotFoundError: If it names an SQLite file that is not there.
    """
    for name, value in own.CLIENT_DEFAULTS.items():
        os.environ.setdefault(name, value)
    from mlflow.tracking import MlflowClient

    own.quiet_mlflow()
    reconnect(uri)
    return MlflowClient(uri)


@contextlib.contextmanager
def user_errors(uri: str, hint: str | None = own.LATER) -> Iterator[None]:
    """Turns what MLflow and the database under it refuse into a ``UserError``."""
    from alembic.util.exc import CommandError
    from mlflow.exceptions import MlflowException
    from sqlalchemy.exc import SQLAlchemyError

    try:
        yield
    except (MlflowException, SQLAlchemyError, CommandError, ImportError, OSError) as error:
        raise own.store_error(uri, error, hint) from error
