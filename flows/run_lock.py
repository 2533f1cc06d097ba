"""One process at a time works on a run, and finds nothing half written in its folder."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from filelock import FileLock, Timeout

from models.errors import UserError

LOCK = ".lock"  # in a run's folder; its time is when the run was worked on last


@contextlib.contextmanager
def locked(root: Path, hint: str = "wait for it") -> Iterator[None]:
    """One process at a time works on a run; whatever writes into its folder does so under this lock.

    Raises:
        UserError: If another one does.
    """
    root.mkdir(parents=True, exist_ok=True)
    lock = FileLock(str(root / LOCK), timeout=0)
    try:
        lock.acquire()
    except Timeout as error:
        raise UserError("another process is working on this run", where=root, hint=hint) from error
    try:
        yield
    finally:
        lock.release()


def remove_unfinished(root: Path) -> None:
    """Removes what a killed process had not written to its end; nobody else works on the run now."""
    for path in root.rglob("*.tmp"):
        if path.is_file() or path.is_symlink():
            path.unlink()
