"""Whether MLflow's store can be used, asked without MLflow, which would retry for minutes."""

import base64
import contextlib
import http.client
import os
import socket
import sqlite3
import urllib.error
import urllib.request
from pathlib import Path
from urllib.parse import SplitResult, unquote

from models.errors import UserError
from tasks.tracking.errors import CORRECT_URI_HINT
from tasks.tracking.settings import TrackingSettings
from tasks.tracking.uri import resolve_uri, split_uri, without_password

PORTS = {"postgresql": 5432, "mysql": 3306, "mssql": 1433}  # of a database whose address names none


def check_available(settings: TrackingSettings, runs_root: Path) -> None:
    """Check within ``timeout`` seconds that the store can be used.

    Raises:
        UserError: If a server does not answer, or the SQLite file is something else, locked or cannot be written.
    """
    uri = resolve_uri(settings, runs_root)
    parts = split_uri(uri)
    database = parts.scheme.partition("+")[0]  # without its driver
    try:
        if parts.scheme in ("http", "https"):
            urllib.request.urlopen(_health(parts), timeout=settings.timeout).close()  # noqa: S310 - http(s)
        elif parts.scheme == "sqlite":
            _check_sqlite(Path(uri.removeprefix("sqlite:///")), settings.timeout)
        elif parts.hostname and "," not in parts.hostname and (port := parts.port or PORTS.get(database)):
            socket.create_connection((parts.hostname, port), settings.timeout).close()
    except (OSError, ValueError, http.client.HTTPException, sqlite3.Error) as error:
        # A proxy or a login page in front of the server is an answer; MLflow reports what it lacks
        if isinstance(error, urllib.error.HTTPError) and error.code < 500:
            return
        is_file = parts.scheme == "sqlite"
        raise UserError(
            "MLflow's database cannot be used" if is_file else "the MLflow tracking server is unreachable",
            where=f"tracking.uri: {without_password(uri)}",
            found=without_password(error),
            hint=f"{'stop what uses it' if is_file else 'start it'}, {CORRECT_URI_HINT}",
        ) from error


def _health(parts: SplitResult) -> urllib.request.Request:
    """Return the request for a server's health; urllib takes a login as a header only, not in the address."""
    login, _, host = parts.netloc.rpartition("@")
    request = urllib.request.Request(f"{parts.scheme}://{host}{parts.path.rstrip('/')}/health")  # noqa: S310 - http(s)
    if login:
        request.add_header("Authorization", f"Basic {base64.b64encode(unquote(login).encode()).decode()}")
    return request


def _check_sqlite(path: Path, timeout: float) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise PermissionError(f"{path} cannot be written")
    if path.exists() and path.stat().st_size:
        with path.open("rb") as file:
            if file.read(16) != b"SQLite format 3\0":
                raise ValueError("not an SQLite file")
        with contextlib.closing(sqlite3.connect(path, timeout=timeout, isolation_level=None)) as database:
            database.execute("BEGIN IMMEDIATE")
            database.execute("ROLLBACK")
