"""Why Prefect's server cannot start: what can be seen before, and what it printed."""

import contextlib
import os
import re
import shutil
import sqlite3
from pathlib import Path

from models.errors import UserError

LOCKED_S = 10.0  # a running server holds its database for moments only
FREE_BYTES = 20 << 20
WITHOUT = {
    "pipeline": "or without Prefect: federation.engine: local in params.yaml, then dvc repro",
    "": "or without Prefect: --set federation.engine=local",
}
# With its -wal and -shm, which SQLite would take for a new database's
_AWAY = "mkdir -p '{home}/old' && mv '{home}/prefect.db'* '{home}/old' (only Prefect's list of runs), {without}"
CAUSES = (  # pattern in what the server printed, what it means, what helps
    (r"Can't locate revision", "Prefect's database was made by another version of Prefect", _AWAY),
    (r"not a database|malformed|is encrypted|database corruption", "Prefect's database is damaged", _AWAY),
    (r"table \w+ already exists|no such table|duplicate column", "Prefect's database is half made", _AWAY),
    (r"No space left|database or disk is full", "The disk of Prefect's database is full", "make room, {without}"),
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
    (r"No module named", "A package of Prefect's server is missing", "pip install 'prefect>=3.9,<3.10', {without}"),
)


def without(flow: str) -> str:
    """How a run does without Prefect, for the end of a hint."""
    return WITHOUT.get(flow, WITHOUT[""])


def check_home(home: Path, flow: str) -> None:
    """The server keeps its database here; without a place for it there is no need to try."""
    probe = home / f".fedscene-{os.getpid()}.tmp"
    try:
        home.mkdir(parents=True, exist_ok=True)
        probe.write_bytes(b"0" * 65536)
        found = "" if shutil.disk_usage(home).free >= FREE_BYTES else "less than 20 MB free"
    except OSError as error:
        found = str(error.strerror or error)
    finally:
        with contextlib.suppress(OSError):
            probe.unlink(missing_ok=True)
    if found:
        hint = f"PREFECT_HOME names another folder, {without(flow)}"
        raise UserError("Prefect's folder cannot be used", where=f"PREFECT_HOME: {home}", found=found, hint=hint)


def check_database(home: Path, flow: str) -> None:
    """A look into the database, since a server that cannot use it takes half a minute to say so."""
    file = home / "prefect.db"
    if _elsewhere() or not file.is_file() or not file.stat().st_size:
        return
    try:
        with contextlib.closing(sqlite3.connect(file, timeout=LOCKED_S)) as database:
            database.execute("BEGIN IMMEDIATE").close()
            found = database.execute("SELECT version_num FROM alembic_version").fetchone()
    except sqlite3.Error as error:
        if "no such table" in str(error):
            return  # just begun; Prefect goes on with it
        raise failure("", [str(error)], home, flow) from error
    if found and not _knows(found[0]):
        raise failure("", [f"Can't locate revision {found[0]}, which prefect {_version()} does not know"], home, flow)


def _knows(revision: str) -> bool:
    """Whether this Prefect has that state of the database among its own; in doubt it has."""
    import prefect

    folder = Path(prefect.__file__).parent / "server/database/_migrations/versions/sqlite"
    files = list(folder.glob("*.py"))
    return not files or any(revision in file.read_text(encoding="utf-8") for file in files)


def _version() -> str:
    from importlib.metadata import version

    return version("prefect")


def _elsewhere() -> str:
    """The variable that names another database than the one in Prefect's folder."""
    return next((name for name in os.environ if name.endswith("DATABASE_CONNECTION_URL")), "")


def failure(why: str, lines: list[str], home: Path, flow: str) -> UserError:
    """The cause by what the server printed; else its last line."""
    text = "\n".join(lines)
    where = _elsewhere() or home / "prefect.db"
    for pattern, what, hint in CAUSES:
        match = re.search(rf"^.*(?:{pattern}).*$", text, re.MULTILINE | re.IGNORECASE)
        if match:
            return UserError(
                what,
                where=where,
                found=match[0].strip()[:300],
                hint=hint.format(home=home, without=without(flow)),
            )
    said = [line.strip() for line in lines if line.strip()]
    found = f"{why}; {said[-1][:300]}" if said else why
    hint = f"prefect server start shows all it says, {without(flow)}"
    return UserError("Prefect's server does not start", where=where, found=found, hint=hint)
