"""The tracking URI: resolved, checked for its form, and shown without its password."""

import re
from pathlib import Path
from urllib.parse import SplitResult, urlsplit

from models.errors import UserError
from tasks.tracking.settings import TrackingSettings

SQLITE = "sqlite:///"
ARTIFACTS = "mlartifacts"  # folder of artifacts beside an SQLite file


def resolve_uri(settings: TrackingSettings, runs_root: Path) -> str:
    """Return the tracking URI; paths of SQLite files become absolute, as the working directory may change.

    Raises:
        UserError: If the URI is invalid, or a folder (MLflow's file store, which MLflow refuses since 3.13).
    """
    uri = settings.uri or f"sqlite:///{runs_root / 'mlflow.db'}"
    if uri.startswith("sqlite:///"):
        return f"sqlite:///{Path(uri.removeprefix('sqlite:///')).expanduser().resolve()}"
    scheme = split_uri(uri).scheme
    if scheme.startswith("sqlite"):  # with fewer slashes it would become a folder called "sqlite:"
        path = uri.partition(":")[2].removeprefix("//")
        hint = f"tracking.uri: sqlite:///{path}"
        raise UserError("the URI of an SQLite file has no path", where="tracking.uri", found=uri, hint=hint)
    if scheme in ("", "file"):
        raise UserError(
            "MLflow no longer supports plain folders",
            where="tracking.uri",
            expected="sqlite:////absolute/path/mlflow.db or http(s)://server",
            found=without_password(uri),
            hint=f"tracking.uri: sqlite:///{Path(uri.removeprefix('file:')).resolve() / 'mlflow.db'}",
        )
    return uri


def split_uri(uri: str) -> SplitResult:
    """Return the parts of a URI.

    Raises:
        UserError: If it cannot be parsed.
    """
    try:
        return urlsplit(uri)
    except ValueError as error:
        expected = "sqlite:////absolute/path/mlflow.db or http(s)://server"
        found = f"{without_password(uri)} ({error})"
        raise UserError("the tracking URI is invalid", where="tracking.uri", expected=expected, found=found) from error


def without_password(text: object) -> str:
    """Return a text with the login in its addresses hidden, as it is shown in errors and reports."""
    return re.sub(r"://[^/\s]+@", "://***@", str(text))


def artifact_location(uri: str, runs_root: Path) -> str | None:
    """Return the folder of artifacts: beside an SQLite file, else in the folder of runs; a server has its own."""
    if uri.startswith(("http://", "https://", "databricks")):
        return None
    home = Path(uri.removeprefix("sqlite:///")).parent if uri.startswith("sqlite:///") else runs_root.resolve()
    return (home / ARTIFACTS).as_uri()
