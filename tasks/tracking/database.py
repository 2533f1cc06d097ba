"""MLflow's SQLite file: made whole or not at all, by one process at a time; a half-made one is set aside.

MLflow makes its tables in some three hundred steps that no transaction holds together. A kill or a full disk between
two of them leaves a file that it can neither use nor mend. So the file is made beside its place and renamed into it.
"""

import contextlib
import logging
import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

from tasks.core.locks import locked
from tasks.tracking.errors import quiet_mlflow, store_error
from tasks.tracking.uri import SQLITE

log = logging.getLogger(__name__)

MIGRATION_TIMEOUT_S = 180.0  # making the tables of a new database takes 3-6 s; other processes wait for it
_MAKING = ".making-"  # part of the name of the folder in which a database is made
_opened: dict[str, tuple[int, int]] = {}  # address -> (device, inode) of the file that MLflow's connections are to


@contextlib.contextmanager
def database_of(uri: str) -> Iterator[None]:
    """Sees to it that the database of an address is there whole; locks an SQLite file for the duration.

    Other stores are left to their servers.

    Raises:
        UserError: If another process holds the lock for too long, or the file cannot be made.
    """
    if not uri.startswith(SQLITE):
        yield
        return
    path = Path(uri.removeprefix(SQLITE))
    path.parent.mkdir(parents=True, exist_ok=True)
    refusal, lock = "another process holds MLflow's database", Path(f"{path}.lock")
    with locked(path, "uses it", wait_s=MIGRATION_TIMEOUT_S, refusal=refusal, hint="wait for it, or end it", file=lock):
        _prepare(path)
        yield


def reconnect(uri: str) -> None:
    """Drops MLflow's open connections to an SQLite file that is not the one of this name any more.

    Raises:
        FileNotFoundError: If there is no such file: MLflow would make an empty one.
    """
    if not uri.startswith(SQLITE):
        return
    path = Path(uri.removeprefix(SQLITE))
    if not path.exists():
        raise FileNotFoundError(f"{path} is gone")
    found = path.stat()
    if _opened.get(uri) not in (None, (found.st_dev, found.st_ino)):
        from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore

        for address, engine in SqlAlchemyStore._engine_map.items():
            if address == uri:
                engine.dispose()
    _opened[uri] = (found.st_dev, found.st_ino)


def _prepare(path: Path) -> None:
    """Makes the database if it is missing or empty; sets a half-made one aside first. The caller holds its lock."""
    for left in path.parent.glob(f".{path.name}{_MAKING}*"):
        shutil.rmtree(left, ignore_errors=True)
    if path.exists() and path.stat().st_size:
        if not half_made(path):
            return
        aside = _set_aside(path)
        log.warning(
            "%s was left half made by a process that was ended, and holds no runs. It is now %s; a new one is made",
            path,
            aside.name,
        )
    _make(path)


def half_made(path: Path) -> bool:
    """Whether an SQLite file is an MLflow database whose making was interrupted, and which holds nothing.

    It holds something from its first run, experiment of its own or registered model on, and is then never touched.
    One of a later MLflow is not half made: MLflow itself says what it thinks of it.
    """
    try:
        with contextlib.closing(sqlite3.connect(f"file:{quote(str(path))}?mode=rw", uri=True)) as database:
            tables = {name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
            if not tables:
                return True
            if not tables & {"experiments", "alembic_version"} or _holds_something(database, tables):
                return False
            revision = None
            if "alembic_version" in tables:
                revision = next(iter(database.execute("SELECT version_num FROM alembic_version")), (None,))[0]
    except sqlite3.Error:  # locked, or damaged: MLflow's own words are clearer
        return False
    left_over = any(name.startswith("_alembic_tmp_") for name in tables)
    return left_over or revision is None or _is_earlier(str(revision))


def _holds_something(database: sqlite3.Connection, tables: set[str]) -> bool:
    questions = {
        "runs": "SELECT 1 FROM runs LIMIT 1",
        "experiments": "SELECT 1 FROM experiments WHERE experiment_id != 0 LIMIT 1",
        "registered_models": "SELECT 1 FROM registered_models LIMIT 1",
    }
    return any(database.execute(question).fetchone() for table, question in questions.items() if table in tables)


def _is_earlier(revision: str) -> bool:
    """Whether this MLflow knows the revision and has later ones."""
    from alembic.script import ScriptDirectory
    from mlflow.store.db.utils import _get_alembic_config

    known = [script.revision for script in ScriptDirectory.from_config(_get_alembic_config("")).walk_revisions()]
    return revision in known[1:]  # the latest comes first


def _set_aside(path: Path) -> Path:
    number = 1
    while (aside := path.with_name(f"{path.name}.half-made-{number}")).exists():
        number += 1
    for ending in ("-journal", "-wal", "-shm"):  # an unfinished step of this file; it would be applied to the new one
        with contextlib.suppress(FileNotFoundError):
            Path(f"{path}{ending}").replace(f"{aside}{ending}")
    return path.replace(aside)


def _make(path: Path) -> None:
    """Makes the database in a folder beside its place and renames it into place."""
    working = Path(tempfile.mkdtemp(prefix=f".{path.name}{_MAKING}", dir=path.parent))
    try:
        made = working / path.name
        _migrate(made, (path.parent / "mlartifacts").as_uri())
        for left in ("-journal", "-wal", "-shm"):  # of a file of this name that somebody removed
            Path(f"{path}{left}").unlink(missing_ok=True)
        with made.open("rb") as file:
            os.fsync(file.fileno())
        made.replace(path)
    finally:
        shutil.rmtree(working, ignore_errors=True)


def _migrate(file: Path, artifacts: str) -> None:
    """MLflow's own making of a database; afterwards all of it is in this one file and no connection is open."""
    from mlflow.exceptions import MlflowException
    from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore
    from sqlalchemy.exc import SQLAlchemyError

    uri = f"{SQLITE}{file}"
    quiet_mlflow()
    try:
        SqlAlchemyStore(uri, artifacts).engine.dispose()
    except (SQLAlchemyError, MlflowException, OSError) as error:
        hint = "see that there is room on the disk, then start again; nothing was left behind"
        raise store_error(f"{SQLITE}{file.parent.parent / file.name}", error, hint) from error
    finally:
        engine = SqlAlchemyStore._engine_map.pop(uri, None)
        if engine is not None:
            engine.dispose()
