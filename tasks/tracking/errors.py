"""What MLflow, or the database under it, refuses, as errors for the user."""

import logging

from models.errors import UserError
from tasks.tracking.uri import without_password

LATER = "the run's own folder is complete; what is missing is logged when the run is resumed"
OTHERWISE = "correct tracking.uri, or train without it: tracking.enabled: false"
MAX_QUOTED = 300  # characters of a database's message in an error


def quiet_mlflow() -> None:
    """Keeps MLflow from printing each refusal of a database with a traceback and its SQL; our own error says it."""
    logging.getLogger("mlflow.store.db.utils").setLevel(logging.CRITICAL)


def store_error(uri: str, error: Exception, hint: str | None) -> UserError:
    """What MLflow, or the database under it, refused, as an error for the user."""
    said = str(error).strip().partition("\n")[0]  # what follows are pages of SQL
    said = said if len(said) <= MAX_QUOTED else f"{said[:MAX_QUOTED]}..."
    what, found = "MLflow did not take or give what was asked", f"{type(error).__name__}: {said}"
    if isinstance(error, ImportError):
        what, found = "A package that MLflow needs here is not installed", error.name or str(error)
        hint = "install it (for a database: its driver), or choose another tracking.uri"
    return UserError(what, where=without_password(uri), found=without_password(found), hint=hint)
