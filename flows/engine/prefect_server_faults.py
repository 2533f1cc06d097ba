"""Why Prefect's server cannot start: what can be checked beforehand, and what the server printed."""

import contextlib
import os
import re
import shutil
import sqlite3
from pathlib import Path

from models.errors import UserError

LOCK_TIMEOUT_S = 10.0  # a running server holds its database for moments only
MIN_FREE_BYTES = 20 << 20
MAX_QUOTED = 300  # characters of the server's output in an error
_ALTERNATIVES = {
    "pipeline": "or without Prefect: federation.engine: local in params.yaml, then dvc repro",
    "": "or without Prefect: --set federation.engine=local",
}
# With its -wal and -shm, which SQLite would take for a new database's
_MOVE_AWAY = "mkdir -p '{home}/old' && mv '{home}/prefect.db'* '{home}/old' (only Prefect's list of runs), {without}"
CAUSES = (  # pattern in what the server printed, what it means, what helps
    (r"Can't locate revision", "Prefect's database was made by another version of Prefect", _MOVE_AWAY),
    (r"not a database|malformed|is encrypted|database corruption", "Prefect's database is damaged", _MOVE_AWAY),
    (r"table \w+ already exists|no such table|duplicate column", "Prefect's database is incomplete", _MOVE_AWAY),
    (r"No space left|database or disk is full", "the disk of Prefect's database is full", "make room, {without}"),
    (
        r"readonly database|unable to open database|Permission denied|Read-only file system",
        "Prefect's database cannot be written to",
        "PREFECT_HOME names a folder where it can be, {without}",
    ),
    (
        r"database is locked",
        "Prefect's database is held by another process",
        "end it, or PREFECT_HOME names another folder, {without}",
    ),
    (r"No module named", "a package of Prefect's server is missing", "pip install 'prefect>=3.9,<3.10', {without}"),
)


def without(flow: str) -> str:
    """Return how to run without Prefect, for the end of a hint."""
    return _ALTERNATIVES.get(flow, _ALTERNATIVES[""])


def check_home(home: Path, flow: str) -> None:
    """Check that the server can keep its database in ``home``.

    Raises:
        UserError: If the folder cannot be written or its disk is full.
    """
    probe = home / f".fedscene-{os.getpid()}.tmp"
    try:
        home.mkdir(parents=True, exist_ok=True)
        probe.write_bytes(b"0" * 65536)
        found = "" if shutil.disk_usage(home).free >= MIN_FREE_BYTES else "less than 20 MB free"
    except OSError as error:
        found = str(error.strerror or error)
    finally:
        with contextlib.suppress(OSError):
            probe.unlink(missing_ok=True)
    if found:
        hint = f"PREFECT_HOME names another folder, {without(flow)}"
        raise UserError("Prefect's folder cannot be used", where=f"PREFECT_HOME: {home}", found=found, hint=hint)


def check_database(home: Path, flow: str) -> None:
    """Check the database beforehand, as a server that cannot use it takes half a minute to fail.

    Raises:
        UserError: If it is damaged, locked or of another version of Prefect.
    """
    file = home / "prefect.db"
    if _database_variable() or not file.is_file() or not file.stat().st_size:
        return
    try:
        with contextlib.closing(sqlite3.connect(file, timeout=LOCK_TIMEOUT_S)) as database:
            database.execute("BEGIN IMMEDIATE").close()
            found = database.execute("SELECT version_num FROM alembic_version").fetchone()
    except sqlite3.Error as error:
        if "no such table" in str(error):
            return  # a new one; Prefect completes it
        raise failure("", [str(error)], home, flow) from error
    if found and not _knows(found[0]):
        raise failure("", [f"Can't locate revision {found[0]}, which prefect {_version()} does not know"], home, flow)


def _knows(revision: str) -> bool:
    """Return whether this Prefect knows that revision of the database; ``True`` if it cannot be told."""
    import prefect

    folder = Path(prefect.__file__).parent / "server/database/_migrations/versions/sqlite"
    files = list(folder.glob("*.py"))
    return not files or any(revision in file.read_text(encoding="utf-8") for file in files)


def _version() -> str:
    from importlib.metadata import version

    return version("prefect")


def _database_variable() -> str:
    """Return the variable that names another database than the one in Prefect's folder, "" if there is none."""
    return next((name for name in os.environ if name.endswith("DATABASE_CONNECTION_URL")), "")


def failure(why: str, lines: list[str], home: Path, flow: str) -> UserError:
    """Return the error for what the server printed: its cause where it is known, else its last line."""
    text = "\n".join(lines)
    where = _database_variable() or home / "prefect.db"
    for pattern, what, hint in CAUSES:
        match = re.search(rf"^.*(?:{pattern}).*$", text, re.MULTILINE | re.IGNORECASE)
        if match:
            return UserError(
                what,
                where=where,
                found=match[0].strip()[:MAX_QUOTED],
                hint=hint.format(home=home, without=without(flow)),
            )
    printed = [line.strip() for line in lines if line.strip()]
    found = f"{why}; {printed[-1][:MAX_QUOTED]}" if printed else why
    hint = f"prefect server start shows its whole output, {without(flow)}"
    return UserError("Prefect's server does not start", where=where, found=found, hint=hint)
