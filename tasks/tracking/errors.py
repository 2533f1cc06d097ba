"""Errors of MLflow, or of the database under it, as errors for the user."""

import logging

from models.errors import UserError
from tasks.tracking.uri import without_password

LATER_HINT = "the run's own folder is complete; what is missing is logged when the run is resumed"
CORRECT_URI_HINT = "correct tracking.uri, or train without it: tracking.enabled: false"
MAX_QUOTED = 300  # characters of a database's message in an error


def quiet_mlflow() -> None:
    """Keep MLflow from printing each database error with a traceback and its SQL; a ``UserError`` reports it."""
    logging.getLogger("mlflow.store.db.utils").setLevel(logging.CRITICAL)


def store_error(uri: str, error: Exception, hint: str | None) -> UserError:
    """Return an error of MLflow, or of the database under it, as an error for the user."""
    message = str(error).strip().partition("\n")[0]  # pages of SQL follow
    message = message if len(message) <= MAX_QUOTED else f"{message[:MAX_QUOTED]}..."
    what, found = "MLflow failed", f"{type(error).__name__}: {message}"
    if isinstance(error, ImportError):
        what, found = "a package that MLflow needs here is not installed", error.name or str(error)
        hint = "install it (for a database: its driver), or choose another tracking.uri"
    return UserError(what, where=without_password(uri), found=without_password(found), hint=hint)
