"""Where MLflow is, whether it can be used, and what a run is tagged with: all that needs no MLflow to be imported."""

import base64
import contextlib
import http.client
import logging
import math
import os
import re
import socket
import sqlite3
import urllib.error
import urllib.request
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, unquote, urlsplit

from pydantic import Field

from models.base_settings import Section
from models.errors import UserError
from tasks.core.names import metric_parts
from tasks.core.records import RoundRecord
from tasks.core.round_summary import best_score

RUN_TAG = "fedscene.run_id"
# What the UI orders its menus by: training runs, not prompts and traces
EXPERIMENT_TAGS = {"mlflow.experimentKind": "custom_model_development"}
DATA_TAG = "fedscene.data_version"
LAST_TAG = "fedscene.last_round"
LOGGED_TAG = "fedscene.logged_rounds"
ROUNDS_TAG = "fedscene.rounds"
BEST_TAG = "fedscene.best_round"
BEST_VALUE_TAG = "fedscene.best_score"
REPORT_TAG = "fedscene.report_digest"
MODEL_TAG = "fedscene.model"  # .last, .best
MODEL_ERROR_TAG = "fedscene.model_error"
CUT_TAG = "fedscene.cut_params"
CHANGED_TAG = "fedscene.changed_params"
PARAM_LENGTH, TAG_LENGTH = 6000, 8000  # MLflow's limits
MAX_ROUNDS = 1_000_000  # in one range of a tag: a damaged one must not fill the memory
SAID_LENGTH = 300  # of a database's words in an error
PORTS = {"postgresql": 5432, "mysql": 3306, "mssql": 1433}  # of a database whose address names none
# Set only where the user has not: no telemetry, 2 minutes instead of many for a server that hangs, no bars
CLIENT_DEFAULTS = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "3",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "20",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
}
LATER = "the run's own folder is complete; what is missing is logged when the run is resumed"
OTHERWISE = "correct tracking.uri, or train without it: tracking.enabled: false"


class TrackingSettings(Section):
    """What is written to MLflow, and where."""

    enabled: bool = Field(default=True, description="Write rounds, metrics and models to MLflow.")
    uri: str | None = Field(
        default=None, description="Tracking URI: sqlite:///..., http(s)://... Unset: mlflow.db in the folder of runs."
    )
    experiment: str = Field(default="fedscene", min_length=1, description="Name of the MLflow experiment.")
    keep_rounds: int = Field(
        default=5, ge=1, description="Rounds whose weights stay in MLflow; the last and the best always stay."
    )
    log_models: bool = Field(default=True, description="Keep weights, and the last and best network as MLflow models.")
    timeout: float = Field(
        default=5.0, gt=0, le=120, description="Seconds in which a tracking server must answer at start."
    )


def resolve_uri(settings: TrackingSettings, runs_root: Path) -> str:
    """The tracking URI; SQLite files become absolute, as a relative one follows the working directory.

    Raises:
        UserError: If the URI is no address, or a folder (MLflow's file store, which MLflow refuses since 3.13).
    """
    uri = settings.uri or f"sqlite:///{runs_root / 'mlflow.db'}"
    if uri.startswith("sqlite:///"):
        return f"sqlite:///{Path(uri.removeprefix('sqlite:///')).expanduser().resolve()}"
    scheme = _split(uri).scheme
    if scheme.startswith("sqlite"):  # with fewer slashes it would become a folder called "sqlite:"
        path = uri.partition(":")[2].removeprefix("//")
        hint = f"tracking.uri: sqlite:///{path}"
        raise UserError("This address of an SQLite file has no path", where="tracking.uri", found=uri, hint=hint)
    if scheme in ("", "file"):
        raise UserError(
            "MLflow keeps no runs in plain folders any more",
            where="tracking.uri",
            expected="sqlite:////absolute/path/mlflow.db or http(s)://server",
            found=without_password(uri),
            hint=f"tracking.uri: sqlite:///{Path(uri.removeprefix('file:')).resolve() / 'mlflow.db'}",
        )
    return uri


def _split(uri: str) -> SplitResult:
    try:
        return urlsplit(uri)
    except ValueError as error:
        expected = "sqlite:////absolute/path/mlflow.db or http(s)://server"
        found = f"{without_password(uri)} ({error})"
        raise UserError("This is no address", where="tracking.uri", expected=expected, found=found) from error


def without_password(text: object) -> str:
    """The text, with what stands before the ``@`` of an address hidden: it is shown in errors and reports."""
    return re.sub(r"://[^/\s]+@", "://***@", str(text))


def check(settings: TrackingSettings, runs_root: Path) -> None:
    """Fails within ``timeout`` seconds when the store cannot be used; MLflow itself would retry for minutes.

    Raises:
        UserError: If a server does not answer, or the SQLite file is something else, locked or cannot be written.
    """
    uri = resolve_uri(settings, runs_root)
    parts = _split(uri)
    database = parts.scheme.partition("+")[0]  # without its driver
    try:
        if parts.scheme in ("http", "https"):
            urllib.request.urlopen(_health(parts), timeout=settings.timeout).close()  # noqa: S310 - http(s)
        elif parts.scheme == "sqlite":
            _check_sqlite(Path(uri.removeprefix("sqlite:///")), settings.timeout)
        elif parts.hostname and "," not in parts.hostname and (port := parts.port or PORTS.get(database)):
            socket.create_connection((parts.hostname, port), settings.timeout).close()
    except (OSError, ValueError, http.client.HTTPException, sqlite3.Error) as error:
        # A proxy or a log-in page in front of the server is an answer; MLflow says what it lacks
        if isinstance(error, urllib.error.HTTPError) and error.code < 500:
            return
        is_file = parts.scheme == "sqlite"
        raise UserError(
            "MLflow's database is no use" if is_file else "The MLflow tracking server does not answer",
            where=f"tracking.uri: {without_password(uri)}",
            found=without_password(error),
            hint=f"{'end what uses it' if is_file else 'start it'}, {OTHERWISE}",
        ) from error


def _health(parts: SplitResult) -> urllib.request.Request:
    """The question to a server; urllib takes a name and password as a header only, not in the address."""
    login, _, host = parts.netloc.rpartition("@")
    request = urllib.request.Request(f"{parts.scheme}://{host}{parts.path.rstrip('/')}/health")  # noqa: S310 - http(s)
    if login:
        request.add_header("Authorization", f"Basic {base64.b64encode(unquote(login).encode()).decode()}")
    return request


def quiet_mlflow() -> None:
    """Keeps MLflow from printing each refusal of a database with a traceback and its SQL; our own error says it."""
    logging.getLogger("mlflow.store.db.utils").setLevel(logging.CRITICAL)


def store_error(uri: str, error: Exception, hint: str | None) -> UserError:
    """What MLflow, or the database under it, refused, as an error for the user."""
    said = str(error).strip().partition("\n")[0]  # what follows are pages of SQL
    said = said if len(said) <= SAID_LENGTH else f"{said[:SAID_LENGTH]}..."
    what, found = "MLflow did not take or give what was asked", f"{type(error).__name__}: {said}"
    if isinstance(error, ImportError):
        what, found = "A package that MLflow needs here is not installed", error.name or str(error)
        hint = "install it (for a database: its driver), or choose another tracking.uri"
    return UserError(what, where=without_password(uri), found=without_password(found), hint=hint)


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


def artifact_location(uri: str, runs_root: Path) -> str | None:
    """Beside an SQLite file; in the folder of runs for another database; a server decides for itself."""
    if uri.startswith(("http://", "https://", "databricks")):
        return None
    home = Path(uri.removeprefix("sqlite:///")).parent if uri.startswith("sqlite:///") else runs_root.resolve()
    return (home / "mlartifacts").as_uri()


def plan_params(
    params: Mapping[str, Any], old: Mapping[str, str], tags: Mapping[str, str]
) -> tuple[dict[str, str], dict[str, str]]:
    """What to send: the params that a run does not have yet, and its tags with notes on those that cannot be sent."""
    parts = metric_parts(params)
    values = {parts[key]: str(value) for key, value in params.items()}
    cut = sorted(key for key, value in values.items() if len(value) > PARAM_LENGTH)
    values = {key: value[:PARAM_LENGTH] for key, value in values.items()}
    changed = [f"{key}: {old[key]} -> {value}" for key, value in values.items() if old.get(key, value) != value]
    sent = {str(key): str(value) for key, value in tags.items()}
    for tag, notes in ((CUT_TAG, cut), (CHANGED_TAG, changed)):
        if notes:
            sent[tag] = "; ".join(notes)
    new = {key: value for key, value in values.items() if key not in old}
    return new, {key: value[:TAG_LENGTH] for key, value in sent.items()}


def best_tags(tags: Mapping[str, str], record: RoundRecord) -> dict[str, str]:
    """The tags that name the best round so far, after ``record``; the earlier of two equal rounds is the best."""
    value, best = best_score(record), float(tags.get(BEST_VALUE_TAG, "nan"))
    earlier = value == best and record.round < int(tags[BEST_TAG])
    if math.isfinite(value) and (earlier or not value <= best):
        return {BEST_TAG: str(record.round), BEST_VALUE_TAG: repr(float(value))}
    if math.isfinite(best):
        return {BEST_TAG: tags[BEST_TAG]}
    return {BEST_TAG: str(max(record.round, int(tags.get(BEST_TAG, 0))))}


def ranges(numbers: Iterable[int]) -> str:
    """A set of numbers as text, ``1-3,5``; shorter than a tag may be for any run."""
    parts: list[list[int]] = []
    for number in sorted(set(numbers)):
        if parts and number == parts[-1][-1] + 1:
            parts[-1][1:] = [number]
        else:
            parts.append([number])
    return ",".join("-".join(map(str, part)) for part in parts)


def numbers_of(text: str) -> set[int]:
    """The numbers that ``ranges`` wrote; what is no number there is left out, so that such a round is logged again."""
    found: set[int] = set()
    for part in re.findall(r"\d+(?:-\d+)?", text):
        first, _, last = part.partition("-")
        found.update(range(int(first), min(int(last or first), int(first) + MAX_ROUNDS) + 1))
    return found
