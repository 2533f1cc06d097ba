"""MLflow's SQLite file: created completely or not at all, by one process at a time; an incomplete one is set aside.

MLflow creates its tables in some three hundred steps without a common transaction. A kill or a full disk between two
of them leaves a file that MLflow can neither use nor repair. So the file is created under another name and renamed.
"""

import contextlib
import itertools
import logging
import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote, unquote

from tasks.core.locks import locked
from tasks.tracking.errors import quiet_mlflow, store_error
from tasks.tracking.uri import ARTIFACTS, SQLITE

log = logging.getLogger(__name__)

MIGRATION_TIMEOUT_S = 180.0  # creating the tables takes 3-6 s; other processes wait for it
# Where MLflow stores the absolute addresses of artifacts
_ADDRESSES = (("experiments", "artifact_location"), ("runs", "artifact_uri"), ("logged_models", "artifact_location"))
_CREATING = ".making-"  # part of the name of the folder in which a database is created
_opened: dict[str, tuple[int, int]] = {}  # URI -> (device, inode) of the file that MLflow is connected to


@contextlib.contextmanager
def database_ready(uri: str) -> Iterator[None]:
    """Create the database of a tracking URI if it is missing; lock an SQLite file inside the block.

    Other stores are left to their servers.

    Raises:
        UserError: If another process holds the lock for too long, or the file cannot be created.
    """
    if not uri.startswith(SQLITE):
        yield
        return
    path = Path(uri.removeprefix(SQLITE))
    path.parent.mkdir(parents=True, exist_ok=True)
    refusal, lock = "another process holds MLflow's database", Path(f"{path}.lock")
    with locked(path, "uses it", wait_s=MIGRATION_TIMEOUT_S, refusal=refusal, hint="wait for it, or end it", file=lock):
        _prepare(path)
        follow_artifacts(path)
        yield


def reconnect(uri: str) -> None:
    """Close MLflow's connections to an SQLite file that was replaced by another one of this name.

    Raises:
        FileNotFoundError: If there is no such file: MLflow would create an empty one.
    """
    if not uri.startswith(SQLITE):
        return
    path = Path(uri.removeprefix(SQLITE))
    if not path.exists():
        raise FileNotFoundError(f"{path} is missing")
    found = path.stat()
    if _opened.get(uri) not in (None, (found.st_dev, found.st_ino)):
        from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore

        for address, engine in SqlAlchemyStore._engine_map.items():
            if address == uri:
                engine.dispose()
    _opened[uri] = (found.st_dev, found.st_ino)


def _prepare(path: Path) -> None:
    """Create the database if it is missing or empty; set an incomplete one aside first. The caller holds its lock."""
    for left in path.parent.glob(f".{path.name}{_CREATING}*"):
        shutil.rmtree(left, ignore_errors=True)
    if path.exists() and path.stat().st_size:
        if not is_incomplete(path):
            return
        aside = _set_aside(path)
        log.warning(
            "%s was left incomplete by a killed process, and has no runs. It is now %s; a new one is created",
            path,
            aside.name,
        )
    _create(path)


def is_incomplete(path: Path) -> bool:
    """Return whether an SQLite file is an MLflow database that is incomplete and empty.

    A database with a run, an experiment besides the default one, or a registered model is never touched. One of a
    later MLflow is not incomplete: MLflow itself reports it.
    """
    try:
        with contextlib.closing(sqlite3.connect(f"file:{quote(str(path))}?mode=rw", uri=True)) as database:
            tables = {name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
            if not tables:
                return True
            if not tables & {"experiments", "alembic_version"} or _has_content(database, tables):
                return False
            revision = None
            if "alembic_version" in tables:
                revision = next(iter(database.execute("SELECT version_num FROM alembic_version")), (None,))[0]
    except sqlite3.Error:  # locked or damaged: MLflow's own message is clearer
        return False
    left_over = any(name.startswith("_alembic_tmp_") for name in tables)
    return left_over or revision is None or _is_earlier(str(revision))


def follow_artifacts(path: Path) -> None:
    """Correct the addresses of artifacts if an SQLite file and the folder beside it were moved or copied together.

    MLflow stores absolute addresses: it would write to the old place, and find nothing in the new one. Addresses of
    artifacts that are not in the new place stay.
    """
    own = path.parent / ARTIFACTS
    if not own.is_dir():
        return
    try:
        with contextlib.closing(sqlite3.connect(path)) as database, database:
            found = database.execute("SELECT DISTINCT artifact_location FROM experiments").fetchall()
            places = [place for (place,) in found if str(place).startswith("file:") and place.endswith(f"/{ARTIFACTS}")]
            moved = [place for place in places if place != own.as_uri() and _holds_runs_of(database, own, place)]
            for place, (table, column) in itertools.product(moved, _ADDRESSES):
                inside = f"substr({column}, 1, ?) = ?"
                database.execute(
                    f"UPDATE {table} SET {column} = ? || substr({column}, ?) WHERE {column} = ? OR {inside}",  # noqa: S608
                    (own.as_uri(), len(place) + 1, place, len(place) + 1, f"{place}/"),
                )
    except sqlite3.Error:  # locked, damaged or of another MLflow, whose own message is clearer
        return
    for place in moved:
        log.warning("MLflow's artifacts were in %s and are now beside their database, in %s", place, own)


def _holds_runs_of(database: sqlite3.Connection, own: Path, place: str) -> bool:
    """Return whether artifacts of a run whose address is in ``place`` are in the folder ``own``."""
    query = "SELECT substr(artifact_uri, ?) FROM runs WHERE substr(artifact_uri, 1, ?) = ?"
    inside = database.execute(query, (len(place) + 2, len(place) + 1, f"{place}/"))
    return any((own / unquote(name)).is_dir() for (name,) in inside)


def _has_content(database: sqlite3.Connection, tables: set[str]) -> bool:
    queries = {
        "runs": "SELECT 1 FROM runs LIMIT 1",
        "experiments": "SELECT 1 FROM experiments WHERE experiment_id != 0 LIMIT 1",
        "registered_models": "SELECT 1 FROM registered_models LIMIT 1",
    }
    return any(database.execute(query).fetchone() for table, query in queries.items() if table in tables)


def _is_earlier(revision: str) -> bool:
    """Return whether this MLflow knows the revision and has later ones."""
    from alembic.script import ScriptDirectory
    from mlflow.store.db.utils import _get_alembic_config

    known = [script.revision for script in ScriptDirectory.from_config(_get_alembic_config("")).walk_revisions()]
    return revision in known[1:]  # the latest comes first


def _set_aside(path: Path) -> Path:
    number = 1
    while (aside := path.with_name(f"{path.name}.incomplete-{number}")).exists():
        number += 1
    # Unfinished transactions of this file would be applied to the new one
    for ending in ("-journal", "-wal", "-shm"):
        with contextlib.suppress(FileNotFoundError):
            Path(f"{path}{ending}").replace(f"{aside}{ending}")
    return path.replace(aside)


def _create(path: Path) -> None:
    """Create the database in a temporary folder beside its final place, then rename it."""
    folder = Path(tempfile.mkdtemp(prefix=f".{path.name}{_CREATING}", dir=path.parent))
    try:
        created = folder / path.name
        create_tables(created, (path.parent / ARTIFACTS).as_uri())
        for left in ("-journal", "-wal", "-shm"):  # of a removed file of this name
            Path(f"{path}{left}").unlink(missing_ok=True)
        with created.open("rb") as file:
            os.fsync(file.fileno())
        created.replace(path)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def create_tables(file: Path, artifacts: str) -> None:
    """Let MLflow create its tables; afterwards all of them are in this one file and no connection is open."""
    from mlflow.exceptions import MlflowException
    from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore
    from sqlalchemy.exc import SQLAlchemyError

    uri = f"{SQLITE}{file}"
    quiet_mlflow()
    try:
        SqlAlchemyStore(uri, artifacts).engine.dispose()
    except (SQLAlchemyError, MlflowException, OSError) as error:
        hint = "check the free space on the disk, then start again; nothing was left behind"
        raise store_error(f"{SQLITE}{file.parent.parent / file.name}", error, hint) from error
    finally:
        engine = SqlAlchemyStore._engine_map.pop(uri, None)
        if engine is not None:
            engine.dispose()
